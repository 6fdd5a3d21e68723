#!/usr/bin/env python3
"""`holdfast exports import`: what becomes of /etc/exports, and a server that exports the result.

    HOLDFASTD=PATH test_exports_import.py [unittest's own arguments]
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, "..", "files")]

# pylint: disable=wrong-import-position
import nfs
from certs import Authority
from until import until

HOLDFASTD = os.path.abspath(os.environ["HOLDFASTD"])
HOLDFAST = os.path.join(os.path.dirname(HOLDFASTD), "holdfast")
PATIENCE = 60

# An option of /etc/exports, what the export of "/tmp 192.0.2.7(OPTION)" has then, and whether that is all of it.
OPTIONS = (
    ("", {}, True),
    ("ro", {}, True),
    ("rw", {"access": "rw"}, True),
    ("rw,ro", {}, True),
    ("rw,", {"access": "rw"}, True),
    ("secure", {}, True),
    ("insecure", {"secure": "false"}, True),
    ("sync", {}, True),
    ("async", {"sync": "false"}, True),
    ("root_squash", {}, True),
    ("no_root_squash", {"squash": "none"}, True),
    ("all_squash", {"squash": "all"}, True),
    ("all_squash,no_root_squash", {"squash": "all"}, True),
    ("no_root_squash,all_squash,no_all_squash", {"squash": "none"}, True),
    ("no_all_squash", {}, True),
    ("anonuid=1000,anongid=2000", {"anon_uid": "1000", "anon_gid": "2000"}, True),
    ("anonuid=-2", {"anon_uid": "4294967294"}, True),
    ("anongid=0", {"anon_gid": "0"}, True),
    ("sec=sys", {}, True),
    ("xprtsec=none", {}, True),
    ("subtree_check", {}, True),
    ("no_subtree_check", {}, True),
    ("wdelay", {}, True),
    ("no_wdelay", {}, True),
    ("hide", {}, True),
    ("auth_nlm", {}, True),
    ("secure_locks", {}, True),
    ("acl", {}, True),
    ("no_acl", {}, True),
    ("no_pnfs", {}, True),
    ("rdirplus", {}, True),
    ("nohide", {}, False),
    ("crossmnt", {}, False),
    ("fsid=0", {}, False),
    ("fsid=4711", {}, False),
    ("no_auth_nlm", {}, False),
    ("insecure_locks", {}, False),
    ("nordirplus", {}, False),
    ("pnfs", {}, False),
    ("refer=/a@192.0.2.1", {}, False),
    ("replicas=/a@192.0.2.1", {}, False),
    ("security_label", {}, False),
    ("sec=krb5:sys", {}, False),
    ("xprtsec=none:tls", {}, False),
    ("xprtsec=tls", {"transport": "tls"}, True),
    ("xprtsec=mtls", {"transport": "mtls"}, True),
    ("xprtsec=mtls:tls", {"transport": "tls"}, False),
    ("xprtsec=none:tls:mtls", {}, False),
    ("xprtsec=mtls,xprtsec=none", {}, True),
    # Without these, clients could get more: nothing is exported
    ("sec=krb5", None, False),
    ("sec=krb5i:krb5p", None, False),
    ("sec=sys,ro,sec=krb5,rw", None, False),
    ("xprtsec=ssl", None, False),
    ("xprtsec=tls:ssl", None, False),
    ("xprtsec=tls:", None, False),
    ("xprtsec", None, False),
    ("mountpoint", None, False),
    ("mp=/mnt", None, False),
    ("squash_uids=0-10", None, False),
    ("squash_gids=5", None, False),
    ("anonuid=-1", None, False),
    ("anonuid=root", None, False),
    ("anonuid", None, False),
    ("no_such_option", None, False),
    ("rw=foo", None, False),
    ("no_root_squash=1", None, False),
    ("insecure=", None, False),
    ("fsid", None, False),
    (",rw", None, False),
    ("rw,,insecure", None, False),
)
DEFAULTS = {"access": "ro", "squash": "root", "anon_uid": "65534", "anon_gid": "65534", "secure": "true", "sync": "true",
            "transport": "any"}  # fmt: skip


def run(text, *words):
    return subprocess.run([HOLDFAST, "exports", "import", *words], input=text.encode("utf-8", "surrogateescape"),
                          capture_output=True, timeout=PATIENCE, check=False)  # fmt: skip


class Import(unittest.TestCase):
    def setUp(self):
        self.base = tempfile.mkdtemp(prefix="hf-import-")
        self.addCleanup(shutil.rmtree, self.base, True)

    @classmethod
    def setUpClass(cls):
        """Exports that demand TLS need certificates."""
        folder = tempfile.mkdtemp(prefix="hf-import-certs-")
        cls.addClassCleanup(shutil.rmtree, folder, True)
        authority = Authority(os.path.join(folder, "ca"))
        certificate, key = authority.issue("server")
        cls.tls = []
        for setting in (f"certificate={certificate}", f"key={key}", f"client_ca={authority.certificate}"):
            cls.tls += ["--set", f"tls.{setting}"]

    def folder(self, name):
        path = os.path.join(self.base, name)
        os.mkdir(path)
        return path

    def load(self, yaml):
        """The exports of a configuration that holdfastd accepts, as it prints them: a list of {key: text}."""
        path = os.path.join(self.base, "holdfast.yaml")
        with open(path, "wb") as out:
            out.write(yaml)
        done = subprocess.run([HOLDFASTD, "--config", path, "--print-config", *self.tls], capture_output=True, timeout=PATIENCE,
                              check=False)  # fmt: skip
        self.assertEqual(done.returncode, 0, (done, yaml))
        lines = done.stdout.decode().split("\nexports:", 1)[1].split("\nstore:")[0].split("\n")
        exports = []
        for line in lines:
            if line.strip().startswith("#") or ": " not in line and not line.strip().startswith("{"):
                continue
            if line.startswith("  - "):
                exports.append({})
            if line.strip().startswith("{"):
                exports[-1]["rules"] += line.strip()
                continue
            key, value = line[4:].split(": ", 1)
            exports[-1][key] = value
        return exports

    def taken(self, text, left_out=()):
        """What is exported; exactly these @left_out parts of lines are on stderr, in this order."""
        done = run(text, "-")
        said = done.stderr.decode().splitlines()
        self.assertEqual(len(said), len(left_out), done)
        for line, part in zip(said, left_out):
            self.assertIn(part, line)
        self.assertEqual(done.returncode, 1 if left_out else 0, done)
        return self.load(done.stdout)

    def test_each_option(self):
        paths = [self.folder(f"o{i}") for i in range(len(OPTIONS))]
        done = run("".join(f"{path} 192.0.2.7({option[0]})\n" for path, option in zip(paths, OPTIONS)), "-")
        exports = {export["path"].strip('"'): export for export in self.load(done.stdout)}
        for i, (option, expected, is_all) in enumerate(OPTIONS):
            with self.subTest(option=option):
                self.assertEqual(done.stderr.decode().count(f"stdin:{i + 1}: "), 0 if is_all else 1, done.stderr)
                export = exports.get(paths[i])
                if expected is None:
                    self.assertIsNone(export)
                    self.assertIn(f'#  - path: "{paths[i]}"\n', done.stdout.decode())
                    continue
                self.assertEqual(export["clients"], '["192.0.2.7"]')
                self.assertEqual({key: export[key] for key in DEFAULTS}, {**DEFAULTS, **expected})

    def test_clients(self):
        known = (
            ("192.0.2.7", "192.0.2.7"), ("2001:db8::7", "2001:db8::7"), ("192.0.2.0/24", "192.0.2.0/24"),
            ("192.0.2.0/255.255.255.0", "192.0.2.0/24"), ("0.0.0.0/0.0.0.0", "0.0.0.0/0"), ("2001:db8::/32", "2001:db8::/32"),
            ("*", "any"), ("", "any"), ('"192.0.2.7"', "192.0.2.7"), ("ws1", "ws1"), ("ws1.example.org", "ws1.example.org"),
            ("*.example.org", "*.example.org"), ("ws[1-3].example.org", "ws[1-3].example.org"),
        )  # fmt: skip
        exports = self.taken("".join(f"{self.folder(f'c{i}')} {client}(rw)\n" for i, (client, _) in enumerate(known)))
        self.assertEqual([export["clients"] for export in exports], [f'["{expected}"]' for _, expected in known])
        for client in ("@group", "gss/krb5", "192.0.2.0/255.0.255.0", "192.0.2.0/33", "10.0.*/8", "10.0.*", "ws*", "1.2.3"):
            with self.subTest(client=client):
                self.assertEqual(self.taken(f"/tmp {client}(rw)\n", (f"stdin:1: client {client}",)), [])

    def test_netgroups(self):
        """The message says what to do instead, and the export waits for a person."""
        done = run("/tmp @staff(ro) *(rw)\n", "-")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr.decode(), r"^stdin:1: client @staff: netgroups are not supported; list the hosts that "
                         r"`getent netgroup` shows, or a network or domain that they are in\n$")  # fmt: skip
        self.assertIn('#  - path: "/tmp"\n', done.stdout.decode())

    def test_hosts_that_are_called_as_our_words(self):
        """any and private are many clients in a configuration, and one host in the file."""
        for name in ("any", "private", "Any", "PRIVATE"):
            with self.subTest(name=name):
                done = run(f"/tmp {name}(rw)\n", "-")
                self.assertEqual(done.stderr.decode(), f"stdin:1: client {name}: it is a word of the configuration that stands for "
                                 "many clients; write the host's full name or its address\n")  # fmt: skip
                self.assertEqual(done.returncode, 1)
                self.assertEqual(self.load(done.stdout), [])
                self.assertIn('#  - path: "/tmp"\n#    clients: []\n', done.stdout.decode())
        self.assertEqual(self.taken("/tmp any.example.org(rw)\n")[0]["clients"], '["any.example.org"]')

    def test_hosts_whose_names_are_near_our_words(self):
        names = ("amy", "andy", "many", "an", "pirate", "privat")
        export = self.taken(f"/tmp {' '.join(name + '(rw)' for name in names)}\n")[0]
        self.assertEqual(export["clients"], "[" + ", ".join(f'"{name}"' for name in names) + "]")
        checked = subprocess.run([HOLDFASTD, "--config", os.path.join(self.base, "holdfast.yaml"), "--check"], capture_output=True,
                                 timeout=PATIENCE, check=False)  # fmt: skip
        self.assertEqual((checked.returncode, checked.stderr), (0, b""))

    def test_syntax(self):
        text = (
            "# a comment\n"
            "\n"
            "/usr \\\n"
            "   192.0.2.7(rw) \\\n"
            "   192.0.2.8(rw) # another\n"
            '"/t\\155p" -async,insecure 192.0.2.1 192.0.2.2(rw)\n'
            "   /bin\t*\n"
            "/etc\n"
        )
        usr, tmp, bin_, etc = self.taken(text)
        self.assertEqual((usr["path"], usr["clients"], usr["access"]), ('"/usr"', '["192.0.2.7", "192.0.2.8"]', "rw"))
        self.assertEqual((tmp["path"], tmp["sync"]), ('"/tmp"', "false"))
        self.assertIn('{clients: ["192.0.2.1"], access: ro,', tmp["rules"])
        self.assertIn('{clients: ["192.0.2.2"], access: rw,', tmp["rules"])
        self.assertNotIn("secure: true", tmp["rules"])
        self.assertEqual((bin_["path"], bin_["clients"], bin_["access"]), ('"/bin"', '["any"]', "ro"))
        self.assertEqual((etc["path"], etc["clients"], etc["access"]), ('"/etc"', '["any"]', "ro"))

    def test_rights_after_a_list_with_flavours(self):
        """The kernel's server copies the rights into the flavour at sec=; only the rest of that list changes them there."""
        said = "stdin:1: sec= in an earlier list has fixed ro or rw, squash and secure; the kernel's server ignores them here"
        for text in (
            "-sec=sys 192.0.2.7(rw,no_root_squash,insecure)", "-sec=sys 192.0.2.7(rw)", "-sec=sys 192.0.2.7(insecure)",
            "-sec=sys 192.0.2.7(no_root_squash)", "-sec=sys 192.0.2.7(all_squash)", "-sec=sys 192.0.2.1 -rw 192.0.2.7",
        ):  # fmt: skip
            with self.subTest(text=text):
                self.assertEqual(self.taken(f"/tmp {text}\n", (said,)), [])
                shown = run(f"/tmp {text}\n", "-").stdout.decode()
                self.assertIn("#    access: ro\n#    secure: true\n", shown)  # what the kernel's server gives
        self.assertIn("#    access: rw\n", run("/tmp -sec=sys,rw 192.0.2.7(ro)\n", "-").stdout.decode())
        for text, access in (
            ("-sec=sys,rw 192.0.2.7", "rw"), ("-rw,sec=sys 192.0.2.7(rw,anonuid=5)", "rw"), ("-sec=sys 192.0.2.7(rw,ro)", "ro"),
            ("-ro 192.0.2.7(sec=sys,rw)", "rw"), ("-ro 192.0.2.7(rw,sec=sys)", "rw"),
        ):  # fmt: skip
            with self.subTest(text=text):
                self.assertEqual(self.taken(f"/tmp {text}\n")[0]["access"], access)

    def test_rules_are_in_the_order_of_exports_5(self):
        text = (
            "/tmp *(ro) *.example.org(ro,all_squash) 192.0.2.0/24(rw) 192.0.2.7(rw,no_root_squash)\n"
            "/tmp a.example.org(rw,no_root_squash) 10.0.0.0/8(rw)\n"
        )
        rules = self.taken(text)[0]["rules"].split("},")
        self.assertEqual([rule.split("clients: ")[1].split("], ")[0] for rule in rules],
                         ['["192.0.2.7", "a.example.org"', '["192.0.2.0/24", "10.0.0.0/8"', '["*.example.org"',
                          '["any"'])  # fmt: skip

    def test_a_blank_before_the_bracket(self):
        export = self.taken("/tmp 192.0.2.7 (rw)\n", ("stdin:1: a blank before (",))[0]
        self.assertIn('{clients: ["192.0.2.7"], access: ro,', export["rules"])
        self.assertIn('{clients: ["any"], access: rw,', export["rules"])

    def test_mistakes(self):
        for text, said in (
            ('/tmp "192.0.2.7(rw)\n', "a quote is not closed"), ("/tmp 192.0.2.7(rw\n", "( is not closed"),
            ("/tmp 192.0.2.7(rw, sync)\n", "( is not closed, or has a blank in it"), ("tmp *(rw)\n", "path tmp: it does not start"),
            ("/tmp 192.0.2.7(rw)(ro)\n", "no blank after )"), ("/tmp 192.0.2.7(rw)192.0.2.0/24\n", "no blank after )"),
            ("/tmp 192.0.2.7(rw)# x\n", "no blank after )"), ("/tmp -ro -rw 192.0.2.7\n", "a client must follow"), ('"/a\\377" *(rw)\n', "not printable UTF-8"),
            ("/tmp 1.2.3.4(" + "x" * 5000 + ")\n", "too long"), ("/tmp *(rw) *(ro)\n", "given twice"),
        ):  # fmt: skip
            with self.subTest(text=text[:40]):
                exports = self.taken("# one\n" + text + "/usr *(ro)\n", (said,))
                self.assertEqual(exports[-1]["path"], '"/usr"')
                self.assertEqual(len(exports), 2 if "twice" in said else 1)
                self.assertIn(b"stdin:2: ", run("# one\n" + text, "-").stderr)

    def test_transport_of_some_clients(self):
        """The strongest one, which gives no client more."""
        text = "/tmp 192.0.2.7(rw,xprtsec=tls) 192.0.2.8(ro) 192.0.2.9(ro,xprtsec=mtls)\n"
        export = self.taken(text, ("stdin:1: xprtsec: the transport is the same for all clients of an export; /tmp gets the "
                                   "strongest, mtls",))[0]  # fmt: skip
        self.assertEqual(export["transport"], "mtls")
        said = run("/tmp *(rw,xprtsec=tls:mtls)\n", "-").stderr.decode()
        self.assertEqual(said, "stdin:1: xprtsec=tls:mtls: the weakest, tls, is taken; it lets the others in, too\n")

    def test_a_backslash_does_not_continue_a_comment(self):
        exports = self.taken("/tmp 192.0.2.7(rw) # one \\\n/usr 192.0.2.7(ro)\n# two \\\n/usr 192.0.2.0/24(rw)\n")
        self.assertEqual([export["path"] for export in exports], ['"/tmp"', '"/usr"'])
        self.assertIn('{clients: ["192.0.2.7"], access: ro,', exports[1]["rules"])
        exports = self.taken("/tmp 192.0.2.7(rw)x # one \\\n/usr 192.0.2.7(ro)\n", ("stdin:1: there is no blank",))
        self.assertEqual([export["path"] for export in exports], ['"/usr"'])

    def test_paths_of_one_directory(self):
        """Its lines belong together, as for the kernel's server."""
        data = self.folder("data")
        link = os.path.join(self.base, "link")
        os.symlink("data", link)
        same = ("path %s: it is the same directory as %s",)
        for first, second, said in (
            (data, f"{data}/", ()), (f"{self.base}//./data", data, ()), (f"{data}/../data", data, ()), (data, f"{link}/../data", ()),
            (data, link, (same[0] % (link, data),)), (link, data, (same[0] % (data, link),)),
        ):  # fmt: skip
            with self.subTest(first=first, second=second):
                exports = self.taken(f"{first} 192.0.2.7(ro)\n{second} 192.0.2.0/24(rw) 192.0.2.7(rw)\n",
                                     (*said, "client 192.0.2.7: it is given twice"))  # fmt: skip
                self.assertEqual([export["path"] for export in exports], [f'"{first if first == link else data}"'])
                self.assertIn('{clients: ["192.0.2.7"], access: ro,', exports[0]["rules"])
                self.assertEqual(self.taken(f"{first} 192.0.2.7(ro\n{second} *(rw)\n", ("( is not closed", *said)), [])
        self.assertEqual(self.taken(f"{link} *(ro)\n")[0]["path"], f'"{link}"')

    def test_a_line_whose_path_is_not_known(self):
        """It could be for any of the exports: all are held."""
        for path, said in (("/tmp\\000", "byte 0"), ('"/tmp', "a quote is not closed"), (f"{self.base}/none/../x", "parts ..")):
            with self.subTest(path=path):
                self.assertEqual(self.taken(f"/usr *(rw)\n{path} 192.0.2.7(ro)\n/bin *(rw)\n", (said,)), [])

    def test_a_line_that_cannot_be_read_suggests_nothing(self):
        done = run("/tmp 192.0.2.7(rw\n/usr 192.0.2.7(rw) *(rw\n/bin @group(rw)\n", "-")
        for path, clients, access in (("/tmp", "", "ro"), ("/usr", '"192.0.2.7"', "rw"), ("/bin", "", "ro")):
            self.assertIn(f'#  - path: "{path}"\n#    clients: [{clients}]\n#    access: {access}\n#    secure: true\n', done.stdout.decode())
        self.assertEqual([word for word in (b"any", b"anon_", b"squash") if word in done.stdout], [])
        text = done.stdout.replace(b"\n#  ", b"\n  ").decode()
        with self.assertRaisesRegex(AssertionError, "exports.clients"):  # to remove the # is not enough
            self.load(text.encode())

    def test_more_than_a_configuration_takes(self):
        """What is written is accepted, and the rest is said."""
        clients = [f"10.0.{i // 250}.{i % 250 + 1}" for i in range(600)]
        exports = self.taken(f"/tmp {' '.join(client + '(rw)' for client in clients)}\n")
        self.assertEqual(re.findall(r"10\.0\.\d+\.\d+", exports[0]["rules"]), clients)
        text = " ".join(f"{client}(rw,anonuid={i + 1})" for i, client in enumerate(clients[:257]))
        self.assertEqual(len(self.taken(f"/tmp {text.rsplit(' ', 1)[0]}\n")), 1)
        self.assertEqual(self.taken(f"/tmp {text}\n", ("stdin:1: /tmp: it needs 257 rules; an export has at most 256",)), [])
        deep = "/tmp" + "/." * 10 + f"/{'d' * 200}" * 5 + "/"
        self.assertEqual(self.taken(f"{deep}{'e' * 15}/ *(rw)\n/usr *(ro)\n", ("it has more than 1024 bytes",))[0]["path"], '"/usr"')

    def test_more_exports_than_a_configuration_takes(self):
        paths = [self.folder(f"e{i}") for i in range(1002)]
        text = "".join(f"{path} 192.0.2.7(rw)\n" for path in paths)
        exports = self.taken(text, [f"{path}: it does not fit: a configuration has at most 1000 exports" for path in paths[1000:]])
        self.assertEqual(len(exports), 1000)
        text = "".join(f"{path} " + " ".join(f"10.{i}.{j}.1" for j in range(256)) + "\n" for i, path in enumerate(paths[:250]))
        done = run(text, "-")
        self.assertEqual(done.returncode, 1)
        n_said = done.stderr.decode().count("it does not fit")
        self.assertEqual(len(self.load(done.stdout)), 250 - n_said)
        self.assertLess(n_said, 100)

    def test_sync_of_some_clients(self):
        export = self.taken("/tmp 192.0.2.7(rw,async) 192.0.2.8(ro)\n", ("stdin:1: async: ",))[0]
        self.assertEqual(export["sync"], "true")

    def test_into_the_packaged_configuration(self):
        """By the commands of the guide."""
        with open(os.path.join(ROOT, "docs", "guide", "export.md"), encoding="utf-8") as guide:
            command = next(line for line in guide if line.startswith("    server# sed ")).strip().removeprefix("server# ")
        path = os.path.join(self.base, "packaged.yaml")
        shutil.copy(os.path.join(ROOT, "contrib", "config", "holdfast.yaml"), path)
        subprocess.run(command.replace("/etc/holdfast/holdfast.yaml", path), shell=True, check=True)
        with open(path, "ab") as out:
            out.write(run(f"{self.folder('data')} 192.0.2.7(rw)\n", "-").stdout)
        with open(path, "rb") as packaged:
            self.assertEqual([export["access"] for export in self.load(packaged.read())], ["rw"])

    def test_files(self):
        self.assertEqual(run("", os.path.join(self.base, "none")).returncode, 5)
        self.assertEqual(subprocess.run([HOLDFAST, "exports"], capture_output=True, check=False).returncode, 2)
        self.assertEqual(self.taken(""), [])
        path = os.path.join(self.base, "exports")
        with open(path, "w", encoding="ascii") as out:
            out.write("/tmp *(rw)\n")
        self.assertEqual(run("", path).returncode, 0)

    def test_a_byte_0(self):
        for text in ("/tmp\0 *(rw)\n", "/tmp \0*(rw)\n", "/tmp *\0(rw)\n", "/tmp *(rw\0)\n", "/tmp 192.0.2.7(rw) \0\n", "/tmp -rw\0 *\n", "\0"):
            with self.subTest(text=text):
                self.assertEqual(self.taken(text, ("stdin:1: a word has a byte 0 in it",)), [])

    def test_noise(self):
        """No text makes it fall over, and whatever it writes is a configuration."""
        seed = b'\0/tmp "a\\040b" 192.0.2.0/24(rw,anonuid=5) -ro @g(sec=sys) #\\\n\t*()'
        for i in range(30):
            noise = bytes(seed[(i * 7 + j * j * (i + 3)) % len(seed)] for j in range(120))
            done = run(noise.decode("latin-1"), "-")
            self.assertIn(done.returncode, (0, 1), (noise, done))
            self.assertNotIn(b"ERROR: ", done.stderr)

    def test_served(self):
        """A server with the result gives each client what the file gave it."""
        data = os.path.join(self.base, "data")
        os.mkdir(data)
        os.chmod(data, 0o777)
        os.chmod(self.base, 0o755)
        done = run(f"{data} 127.0.0.0/8(ro,insecure) 127.0.0.2(rw,insecure,no_root_squash) 127.0.0.3(rw,insecure)\n", "-")
        self.assertEqual(done.returncode, 0)
        config = os.path.join(self.base, "holdfast.yaml")
        with open(config, "wb") as out:
            out.write(done.stdout + b"store: {backend: memory}\napi: {listen: ''}\nserver: {port: 0, portmap: off}\n")
        state = os.path.join(self.base, "state")
        with subprocess.Popen([HOLDFASTD, "--config", config, "--set", f"server.state_dir={state}"],
                              stderr=subprocess.DEVNULL) as daemon:  # fmt: skip
            try:
                until(lambda: os.path.exists(f"{state}/ports.json"), "it serves", PATIENCE)
                with open(f"{state}/ports.json", encoding="ascii") as ports:
                    port = json.load(ports)["rpc"]
                for address, stat, owner in (("127.0.0.2", 0, 0), ("127.0.0.3", 0, 65534), ("127.0.0.4", nfs.ROFS, None)):
                    with nfs.Client(port, local=address) as client:
                        self.assertEqual(client.create(client.root(data), address).stat, stat)
                    if stat == 0:
                        self.assertEqual(os.lstat(f"{data}/{address}").st_uid, owner if os.geteuid() == 0 else os.geteuid())
            finally:
                daemon.send_signal(signal.SIGTERM)
                self.assertEqual(daemon.wait(PATIENCE), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
