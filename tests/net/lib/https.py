"""Plays with an API that speaks HTTPS, with certificates of a CA of its own."""

import http.client
import os
import shutil
import signal
import ssl
import tempfile

from certs import Authority
from commandline import CliPlay
from rest import Rest
from until import PATIENCE


class HttpsRest(Rest):
    """@ca: which server it believes; None: any."""

    def __init__(self, daemon, ca, **how):
        super().__init__(daemon, **how)
        self.ca = ca

    def context(self, alpn=("http/1.1",)):
        made = ssl.create_default_context(cafile=self.ca)
        if not self.ca:
            made.check_hostname = False
            made.verify_mode = ssl.CERT_NONE
        made.set_alpn_protocols(list(alpn))
        return made

    def connection(self):
        return http.client.HTTPSConnection(self.host, self.port, timeout=PATIENCE, context=self.context())

    def shake_hands(self, context=None):
        """A socket with TLS."""
        return (context or self.context()).wrap_socket(self.raw(), server_hostname=self.host)

    def shown(self):
        """The common name of the certificate that a new connection sees."""
        with self.shake_hands() as sock:
            return dict(pair[0] for pair in sock.getpeercert()["subject"])["commonName"]


class HttpsPlay(CliPlay):
    """The files of the API are `api.pem` and `api.key` in a folder of the play's."""

    n_hosts = 0
    names = "IP:127.0.0.1"

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="hf-https-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.ca = Authority(os.path.join(cls.folder, "ca"))
        cls.certificate, cls.key = (os.path.join(cls.folder, name) for name in ("api.pem", "api.key"))
        cls.config = os.path.join(cls.folder, "holdfast.yaml")
        cls.use(*cls.ca.issue("first", cls.names))
        cls.write_config()
        cls.flags = ("--config", cls.config)
        super().setUpClass()
        cls.rest = HttpsRest(cls.daemon, cls.ca.certificate)

    @classmethod
    def write_config(cls, more=""):
        with open(cls.config, "w", encoding="ascii") as out:
            out.write(f"api:\n  certificate: {cls.certificate}\n  key: {cls.key}\n{more}")

    @classmethod
    def use(cls, certificate, key):
        """From the next reload on."""
        shutil.copy(certificate, cls.certificate)
        shutil.copy(key, cls.key)
        os.chmod(cls.key, 0o600)

    def reload(self, says="configuration loaded again"):
        before = len(self.daemon.log)
        self.daemon.process.send_signal(signal.SIGHUP)
        self.until(lambda: says in self.daemon.log[before:], f"it says: {says}")
        return self.daemon.log[before:]
