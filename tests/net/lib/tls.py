"""RPC-with-TLS (RFC 9289) as a client speaks it: the question, then a handshake on the same connection."""

import ssl
import struct

from rpc import PATIENCE, TcpCaller, call_message, new_xid, record
from xdr import In

AUTH_TLS = 7
NFS = 100003
MSG_DENIED, AUTH_ERROR = 1, 1
AUTH_BADCRED, AUTH_REJECTEDCRED, AUTH_TOOWEAK = 1, 2, 5


def question(program=NFS, version=3, procedure=0, args=b"", body=b"", xid=None):
    return call_message(program, version, procedure, args, xid=xid, cred=(AUTH_TLS, body))


def verifier_of(reply):
    """Flavour and body of the verifier in an accepted reply with success."""
    message = In(reply)
    assert [message.u32() for _ in range(3)][1:] == [1, 0], reply
    flavour, body = message.u32(), message.opaque()
    assert message.u32() == 0 and message.at == len(reply), reply
    return flavour, body


def auth_error_of(reply):
    """The status of a denied reply; None where it is none."""
    words = struct.unpack(f">{len(reply) // 4}I", reply[: len(reply) & ~3])
    return words[4] if words[1:4] == (1, MSG_DENIED, AUTH_ERROR) else None


def context(ca=None, certificate=None, alpn=("sunrpc",)):
    """A client's. @ca: which server it believes, None: any; @certificate: (certificate, key) of its own."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = ca is not None
    made.verify_mode = ssl.CERT_REQUIRED if ca else ssl.CERT_NONE
    if ca:
        made.load_verify_locations(ca)
    if certificate:
        made.load_cert_chain(*certificate)
    if alpn:
        made.set_alpn_protocols(list(alpn))
    return made


class TlsCaller(TcpCaller):
    """A TcpCaller that is in the clear until start_tls()."""

    def ask(self, **how):
        """The reply to the question for TLS."""
        self.send(question(**how))
        return self.receive()

    def start_tls(self, how, name="server"):
        assert verifier_of(self.ask()) == (0, b"STARTTLS")
        self.shake_hands(how, name)
        return self

    def shake_hands(self, how, name="server"):
        self.sock.settimeout(PATIENCE)
        self.sock = how.wrap_socket(self.sock, server_hostname=name)
        return self

    def is_closed(self, timeout=PATIENCE):
        """Whether the server closes it, whatever it says before."""
        try:
            self.sock.settimeout(timeout)
            while self.sock.recv(65536):
                pass
        except (TimeoutError, ssl.SSLWantReadError):
            return False
        except (OSError, ssl.SSLError):
            return True
        return True


def null_call(xid=None):
    return call_message(NFS, 3, 0, xid=new_xid() if xid is None else xid)


__all__ = ["TlsCaller", "auth_error_of", "context", "null_call", "question", "record", "verifier_of"]
