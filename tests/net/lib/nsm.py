"""NSM (program 100024) version 1, and a host whose statd writes down what it is told and by whom."""

from dataclasses import dataclass

from fakehost import NSM, FakeHost, Record
from rpc import PATIENCE, PROG_UNAVAIL, Service, TcpCaller, UdpCaller, call_message, exchange
from xdr import In, Out

NULL, STAT, MON, UNMON, UNMON_ALL, SIMU_CRASH, NOTIFY = range(7)
SUCC, FAIL = 0, 1


@dataclass(frozen=True)
class Notice:
    """SM_NOTIFY as it came to a statd."""

    name: str
    state: int
    source: str
    port: int
    transport: str


@dataclass(frozen=True)
class Status:
    """The call-back that a registrar asked for."""

    name: str
    state: int
    priv: bytes
    source: str
    transport: str
    procedure: tuple


def plain(address):
    return address.removeprefix("::ffff:")


class Host(FakeHost):
    """A fake host that registers, too: its program 200100 version 1 takes any procedure."""

    PROGRAM = 200100

    def __init__(self, *args, **how):
        self.told = Record()
        self.statuses = Record()
        self.deaf = False  # statd hears, and says nothing
        self.state = None  # what statd says to SM_STAT; None: it has no number
        self.asked = Record()  # SM_STAT
        self.own = None
        super().__init__(*args, **how)
        self.own = Service(self.stage, self._on_own, ["::"], 0, self.namespace)

    def port_of(self, program, protocol):
        if program == self.PROGRAM:
            return self.own.tcp_port if protocol == 6 else self.own.udp_port
        return super().port_of(program, protocol)

    def _on_statd(self, call):
        if call.program != NSM:
            return call.answer(stat=PROG_UNAVAIL)
        if call.procedure == NOTIFY:
            args = In(call.args)
            self.told.add(Notice(args.string(), args.i32(), plain(call.peer[0]), call.peer[1], call.transport))
            args.end()
        if self.deaf:
            return None
        if call.procedure == STAT:
            self.asked.add(self.state)
        if call.procedure == STAT and self.state is not None:
            return call.answer(Out().u32(SUCC).i32(self.state).bytes())
        return call.answer()

    def _on_own(self, call):
        if call.procedure != NULL:
            self.statuses.add(status_of(call))
        return call.answer()

    def nsm(self, procedure, args=b"", transport="udp", timeout=PATIENCE, **where):
        return exchange(self.caller(transport, **where), call_message(NSM, 1, procedure, args), timeout)

    def notify(self, state, name=None, **how):
        """sm-notify: this host was restarted."""
        self.nsm(NOTIFY, Out().string(self.name if name is None else name).i32(state).bytes(), **how)

    def mon(self, mon_name, my_name=None, procedure=7, priv=bytes(16), program=None, **how):
        """SM_MON: (res_stat, state)"""
        return mon(lambda p, a: self.nsm(p, a, **how), mon_name, my_name or self.name, program or self.PROGRAM,
                   procedure, priv)  # fmt: skip

    def close(self):
        super().close()
        if self.own:
            self.own.close()


def status_of(call):
    args = In(call.args)
    status = Status(args.string(), args.i32(), args.fixed(16), plain(call.peer[0]), call.transport,
                    (call.program, call.version, call.procedure))  # fmt: skip
    args.end()
    return status


def mon_args(mon_name, my_name, program, procedure, priv=b""):
    return Out().string(mon_name).string(my_name).u32(program).u32(1).u32(procedure).fixed(priv).bytes()


def mon(ask, mon_name, my_name, program, procedure, priv):
    results = In(ask(MON, mon_args(mon_name, my_name, program, procedure, priv)))
    answer = results.u32(), results.i32()
    results.end()
    return answer


def state_of(server):
    """The state number of the server in that namespace, as a program of its host is told."""
    local = Local(server)
    try:
        return local.state()
    finally:
        local.close()


class Registrar(Service):
    """A lock manager on @namespace's own host, and what it was told, in @heard."""

    def __init__(self, stage, namespace):
        self.heard = Record()
        self.is_silent = False
        super().__init__(stage, self._on_call, ["127.0.0.1"], 0, namespace)
        self.name = f"127.0.0.1:{self.udp_port}"

    def _on_call(self, call):
        self.heard.add(status_of(call))
        if not self.is_silent:
            call.answer()


class Local:
    """A program on the server's own host, over loopback."""

    def __init__(self, namespace, reserved=False, transport="udp"):
        kind = UdpCaller if transport == "udp" else TcpCaller
        self.caller = kind(("127.0.0.1", 2049), ("127.0.0.1", 0), namespace, reserved)

    def ask(self, procedure, args=b""):
        return exchange(self.caller, call_message(NSM, 1, procedure, args))

    def state(self):
        """The server's state number, as SM_STAT shows it."""
        results = In(self.ask(STAT, Out().string("any-host").bytes()))
        return (results.u32(), results.i32())[1]

    def close(self):
        self.caller.close()
