"""A private CA for tests, by the openssl program: certificates of servers and clients, with any dates, and lists of those
that are revoked."""

import os
import subprocess

CONFIG = """
[ca]
default_ca = here
[here]
database = {folder}/index
serial = {folder}/serial
crlnumber = {folder}/crlnumber
new_certs_dir = {folder}
certificate = {folder}/ca.pem
private_key = {folder}/ca.key
default_md = sha256
default_days = 30
default_crl_days = 30
unique_subject = no
policy = any
x509_extensions = plain
[any]
commonName = optional
organizationName = optional
[plain]
basicConstraints = CA:false
[req]
distinguished_name = empty
[empty]
[ca_extensions]
basicConstraints = critical,CA:true
keyUsage = critical,keyCertSign,cRLSign
"""


def run(*words):
    subprocess.run(["openssl", *words], check=True, capture_output=True)


def together(path, *parts):
    """Makes a file of other files; its path."""
    with open(path, "wb") as out:
        for name in parts:
            with open(name, "rb") as part:
                out.write(part.read())
    return path


class Authority:
    """In @folder, which it makes."""

    def __init__(self, folder, name="Test CA", issuer=None):
        """Signed by its own key, or by the Authority @issuer."""
        os.makedirs(folder)
        self.folder = folder
        self.certificate = os.path.join(folder, "ca.pem")
        self.config = os.path.join(folder, "ca.conf")
        for file, text in (("ca.conf", CONFIG.format(folder=folder)), ("index", ""), ("serial", "01\n"), ("crlnumber", "01\n")):
            with open(os.path.join(folder, file), "w", encoding="ascii") as out:
                out.write(text)
        key = os.path.join(folder, "ca.key")
        self.make_key(key)
        if issuer:
            request = os.path.join(folder, "ca.csr")
            run("req", "-new", "-config", self.config, "-key", key, "-subj", f"/CN={name}", "-out", request)
            run("ca", "-batch", "-notext", "-config", issuer.config, "-in", request, "-out", self.certificate,
                "-extensions", "ca_extensions")  # fmt: skip
        else:
            run("req", "-new", "-x509", "-config", self.config, "-extensions", "ca_extensions", "-key", key, "-subj",
                f"/CN={name}", "-days", "30", "-out", self.certificate)  # fmt: skip

    @staticmethod
    def make_key(path):
        run("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", path)

    def issue(self, name, alternatives="", ends=None, extension=""):
        """The paths of a new certificate and its key. @alternatives: as in "DNS:a,DNS:b"; @ends: a date, as in
        20200101000000Z; without it, 30 days from now."""
        base = os.path.join(self.folder, name.replace("/", "_"))
        key, request, certificate, extensions = (base + end for end in (".key", ".csr", ".pem", ".ext"))
        self.make_key(key)
        run("req", "-new", "-config", self.config, "-key", key, "-subj", f"/CN={name}", "-out", request)
        with open(extensions, "w", encoding="ascii") as out:
            out.write("basicConstraints = CA:false\n" + (f"subjectAltName = {alternatives}\n" if alternatives else "") + extension)
        dates = ("-startdate", "20190101000000Z", "-enddate", ends) if ends else ()
        run("ca", "-batch", "-notext", "-config", self.config, "-in", request, "-out", certificate, "-extfile", extensions, *dates)
        return certificate, key

    def self_signed(self, name):
        """Signed by nothing but its own key."""
        base = os.path.join(self.folder, "self-" + name)
        self.make_key(base + ".key")
        run("req", "-new", "-x509", "-config", self.config, "-key", base + ".key", "-subj", f"/CN={name}", "-days", "30",
            "-out", base + ".pem")  # fmt: skip
        return base + ".pem", base + ".key"

    def revoke(self, certificate):
        run("ca", "-config", self.config, "-revoke", certificate)

    def revocations(self):
        """The path of its list of revoked certificates, made now."""
        path = os.path.join(self.folder, "crl.pem")
        run("ca", "-config", self.config, "-gencrl", "-out", path)
        return path

    def with_revocations(self, *others):
        """The path of a file with its certificate and its list of revoked ones, and the lists of other authorities."""
        paths = (self.certificate, self.revocations(), *(other.revocations() for other in others))
        return together(os.path.join(self.folder, "ca-and-crl.pem"), *paths)
