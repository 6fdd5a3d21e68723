"""nfs-ganesha with what it needs beside it, as a host that is killed and started as a whole."""

import os
import shutil
import subprocess
import tempfile
import time

from guest import PATIENCE, die_with_parent
from until import until

CONFIG = """
NFS_CORE_PARAM {{ Protocols = 3; Enable_NLM = true; Enable_RQUOTA = false; mount_path_pseudo = true; }}
NFSv4 {{ RecoveryBackend = fs; RecoveryRoot = /var/lib/nfs/ganesha; }}
EXPORT {{ Export_Id = 1; Path = {export}; Pseudo = /data; Access_Type = RW; Squash = No_Root_Squash; SecType = sys;
  Protocols = 3; FSAL {{ Name = VFS; }} }}
LOG {{ Default_Log_Level = EVENT; }}
"""
# rpcbind, rpc.statd and sm-notify go to the background once they serve.
HOST = """
mount -t proc proc /proc
mount -t tmpfs tmpfs /run
mkdir /run/rpcbind /run/ganesha
mount --bind {base}/nfs /var/lib/nfs
rpcbind -w
rpc.statd --no-notify
sm-notify {notify}
exec ganesha.nfsd -F -f {base}/conf -L {base}/log -p /run/ganesha/pid
"""


def why_not():
    return None if shutil.which("ganesha.nfsd") else "nfs-ganesha is not installed"


class Ganesha:
    """@like: another one, which has the export and what is remembered of its clients; both are shared.
    @address: the one that clients know, to notify them from."""

    def __init__(self, namespace, note, like=None, address=None):
        self.namespace = namespace
        self.address = address
        self.note = note
        self.process = None
        self.killed_at = None
        self.is_owner = like is None
        if like:
            self.base = like.base
            return
        self.base = tempfile.mkdtemp(prefix="hf-ganesha-")
        os.chmod(self.base, 0o755)
        for name in ("export", "nfs", "nfs/sm", "nfs/sm.bak", "nfs/ganesha"):
            os.mkdir(os.path.join(self.base, name))
        os.chmod(os.path.join(self.base, "export"), 0o1777)
        for name in ("nfs", "nfs/sm", "nfs/sm.bak"):
            shutil.chown(os.path.join(self.base, name), "statd", "nogroup")
        with open(os.path.join(self.base, "conf"), "w", encoding="utf-8") as file:
            file.write(CONFIG.format(export=os.path.join(self.base, "export")))

    def starts(self):
        self.note("ganesha: starts")
        with self.namespace, open(os.devnull, "wb") as nothing:
            self.process = subprocess.Popen(
                ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "sh", "-c",
                 HOST.format(base=self.base, notify=f"-v {self.address}" if self.address else "")],
                stdin=subprocess.DEVNULL, stdout=nothing, stderr=nothing, preexec_fn=die_with_parent,
            )  # fmt: skip
        until(self._has_started, "ganesha serves", PATIENCE)

    def _has_started(self):
        assert self.process.poll() is None, "ganesha does not start"
        return self._serves()

    def _serves(self):
        with self.namespace:
            return subprocess.run(["rpcinfo", "-t", "127.0.0.1", "100021", "4"], check=False, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL).returncode == 0  # fmt: skip

    def is_killed(self):
        if self.process and self.process.poll() is None:
            self.note("ganesha: SIGKILL")
            self.process.kill()
            self.process.wait()
        until(lambda: not self._serves(), "ganesha is gone", PATIENCE)
        self.killed_at = time.monotonic()

    def announces(self, address):
        """That the address is here now."""
        with self.namespace:
            subprocess.run(["busybox", "arping", "-U", "-c", "1", "-I", "eth0", address], check=False, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)  # fmt: skip

    def close(self):
        self.is_killed()
        if not self.is_owner:
            return
        shutil.rmtree(self.base, ignore_errors=True)
