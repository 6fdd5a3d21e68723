"""Plays about RPC-with-TLS: a holdfastd with certificates of a CA of its own, and exports that demand TLS."""

import os
import signal

import exported
import tls
from certs import Authority
from exported import Exported
from rpc import auth_sys, call_message, exchange
from xdr import In, Out

nfs = exported.nfs
PORT = 2049


class Secured(Exported):
    """Exports that demand nothing, TLS, a certificate, and one of some names; the hosts have no keys by themselves."""

    n_hosts = 2
    settings = ("api.listen=127.0.0.1:0",)
    folders = ("data", "tls", "mtls", "named")
    exports = (
        "{{path: {base}/data, name: /data, squash: none}}",
        "{{path: {base}/tls, name: /tls, squash: none, transport: tls}}",
        "{{path: {base}/mtls, name: /mtls, squash: none, transport: mtls}}",
        "{{path: {base}/named, name: /named, squash: none, transport: mtls, identities: [Alpha.example, beta]}}",
    )

    @classmethod
    def setUpClass(cls):
        cls.ca = None
        super().setUpClass()

    @classmethod
    def write_config(cls, exports):
        if not cls.ca:
            cls.ca = Authority(os.path.join(cls.base, "ca"))
            cls.other_ca = Authority(os.path.join(cls.base, "other"), "Another CA")
            cls.server = cls.ca.issue("server", "DNS:server")
            cls.client_ca = cls.ca.certificate
        super().write_config(exports)
        with open(cls.config, "a", encoding="ascii") as out:
            certificate, key = cls.server
            out.write(f"tls:\n  certificate: {certificate}\n  key: {key}\n  client_ca: {cls.client_ca}\n")

    def reload(self, says="configuration loaded again"):
        before = len(self.daemon.log)
        self.daemon.process.send_signal(signal.SIGHUP)
        self.until(lambda: says in self.daemon.log[before:], f"it says: {says}")
        return self.daemon.log[before:]

    def caller(self, host=None):
        host = host or self.a
        made = tls.TlsCaller((host.server, PORT), (host.address, 0), host.namespace)
        self.addCleanup(lambda: made.sock.close())
        return made

    def secured(self, certificate=None, host=None, **how):
        return self.caller(host).start_tls(tls.context(self.ca.certificate, certificate, **how))

    def root(self, share, caller=None):
        """By MOUNT, in the clear."""
        data = In(exchange(caller or self.caller(), call_message(nfs.MOUNT, 3, 1, Out().string(share).bytes(),
                                                                 cred=auth_sys("host"))))  # fmt: skip
        self.assertEqual(data.u32(), 0)
        return data.opaque()

    def ask(self, caller, procedure, args):
        """The reply message to an NFS call."""
        caller.send(call_message(nfs.NFS, 3, procedure, args, cred=auth_sys("host")))
        return caller.receive()

    def getattr(self, caller, share):
        """The status, or "too weak"."""
        reply = self.ask(caller, nfs.GETATTR, Out().opaque(self.root(share)).bytes())
        denied = tls.auth_error_of(reply)
        if denied is not None:
            self.assertEqual(denied, tls.AUTH_TOOWEAK)
            return "too weak"
        return In(reply[24:]).u32()

    def metric(self, name):
        text = self.rest.get("/metrics").body.decode()
        found = [line.rsplit(" ", 1)[1] for line in text.splitlines() if line.startswith(name + " ")]
        return float(found[0]) if found else None

    def handshakes(self, result):
        return self.metric(f'holdfast_tls_handshakes_total{{result="{result}"}}')
