#!/usr/bin/env python3
"""Locks on real files: what the export and the file's rights say to a lock, in each version's own words; and files that
are gone."""

import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
from exported import Exported
from play import each, main
from rpc import AUTH_NONE, auth_sys, call_message, exchange

NO_OLD_WORD = (nlm.S_ROFS, nlm.S_STALE_FH, nlm.S_FAILED)  # DENIED_NOLOCKS in versions 1 and 3


class Rights(Exported):
    folders = ("data", "fixed", "other")
    exports = (
        "{{path: {base}/data, name: /data, squash: none}}",
        "{{path: {base}/fixed, name: /fixed, squash: none, access: ro}}",
        "{{path: {base}/other, name: /other, squash: none, clients: [127.0.0.1]}}",
    )

    def expect(self, wanted, lock, how, cred=None, procedure=nlm.LOCK):
        """Also with block: a file that does not pass the check is no conflict, and no client is told to wait for it."""
        for block in (False, True) if procedure == nlm.LOCK else (False,):
            args = lock.but(block=block).args(procedure, how["version"])
            message = call_message(nlm.PROGRAM, how["version"], procedure, args, cred=cred or auth_sys(self.a.name))
            results = exchange(self.a.caller(how["transport"]), message)
            stat = nlm.res_of(procedure, results, how["version"]).stat
            self.assertEqual(stat, nlm.S_NOLOCKS if how["version"] < 4 and wanted in NO_OLD_WORD else wanted)
            if wanted == nlm.S_GRANTED and procedure == nlm.LOCK:
                self.assertEqual(self.a.unlock(lock), nlm.S_GRANTED)

    @each()
    def test_a_directory(self, how):
        os.makedirs(os.path.join(self.base, "data", "directory"), exist_ok=True)
        fh = self.handle_of(os.path.join(self.base, "data", "directory"))
        for exclusive in (False, True):
            self.expect(nlm.S_FAILED, self.lock_of(self.a, fh=fh, exclusive=exclusive), how)

    @each()
    def test_a_read_only_export(self, how):
        fh = self.handle_of(self.make_file("fixed"), "/fixed", "fixed")
        self.expect(nlm.S_ROFS, self.lock_of(self.a, fh=fh), how)
        self.expect(nlm.S_GRANTED, self.lock_of(self.a, fh=fh, exclusive=False), how)

    @each(versions=(3, 4))
    def test_reservations_in_a_read_only_export(self, how):
        fh = self.handle_of(self.make_file("fixed"), "/fixed", "fixed")
        for access, wanted in ((1, nlm.S_GRANTED), (2, nlm.S_ROFS), (3, nlm.S_ROFS)):
            self.expect(wanted, self.lock_of(self.a, fh=fh, access=access), how, procedure=nlm.SHARE)

    @each()
    def test_an_export_for_others(self, how):
        fh = self.handle_of(self.make_file("other"), "/other", "other")
        for exclusive in (False, True):
            self.expect(nlm.S_FAILED, self.lock_of(self.a, fh=fh, exclusive=exclusive), how)

    @each(versions=(4,), transports=("tcp",))
    def test_a_file_of_another_user(self, how):
        """To write it is what an exclusive lock is for, to read or to write it a shared one."""
        path = self.make_file()
        os.chown(path, 1000, 1000)
        lock = self.lock_of(self.a, fh=self.handle_of(path))
        shared = lock.but(exclusive=False)
        owner, stranger = auth_sys(uid=1000, gid=1000), auth_sys(uid=2000, gid=2000)
        anonymous = (AUTH_NONE, b"")
        for mode, wanted in ((0o600, (nlm.S_FAILED, nlm.S_FAILED)), (0o644, (nlm.S_FAILED, nlm.S_GRANTED)),
                             (0o622, (nlm.S_GRANTED, nlm.S_GRANTED))):  # fmt: skip
            os.chmod(path, mode)
            self.expect(nlm.S_GRANTED, lock, how, owner)
            for cred in (stranger, anonymous):
                self.expect(wanted[0], lock, how, cred)
                self.expect(wanted[1], shared, how, cred)

    @each()
    def test_a_forged_handle(self, how):
        lock = self.lock_of(self.a, fh=self.handle_of(self.make_file()))
        forged = lock.but(fh=lock.fh[:-1] + bytes([lock.fh[-1] ^ 1]))
        self.expect(nlm.S_STALE_FH, forged, how)
        self.expect(nlm.S_STALE_FH, forged, how, procedure=nlm.TEST)
        for procedure in (nlm.UNLOCK, nlm.CANCEL):
            self.expect(nlm.S_GRANTED, forged, how, procedure=procedure)


class Gone(Exported):
    """A file is removed while it is locked."""

    settings = ("api.listen=127.0.0.1:0",)

    @each()
    def test_what_was_held_is_given_back(self, how):
        path = self.make_file()
        lock = self.lock_of(self.a, fh=self.handle_of(path))
        self.assert_granted(self.a, lock, **how)
        os.unlink(path)
        stale = nlm.S_STALE_FH if how["version"] == 4 else nlm.S_NOLOCKS
        self.assertEqual(self.b.lock(self.lock_of(self.b, fh=lock.fh, block=True), **how), stale)
        self.assertEqual(self.a.unlock(lock, **how), nlm.S_GRANTED)
        self.assertEqual(self.rest.get("/api/v1/locks").json["locks"], [])

    def test_a_waiter_is_told_when_it_asks_again(self):
        self.assert_granted(self.a, self.lock_of(self.a))
        waiting = self.waits(self.b)
        os.unlink(self.path)
        self.until(lambda: self.b.lock(waiting), "it is stale", passes=lambda stat: stat == nlm.S_STALE_FH)
        self.assertEqual(self.rest.get("/api/v1/waiters").json["waiters"], [], "and does not wait any more")
        self.assertEqual(self.b.cancel(waiting), nlm.S_GRANTED)
        self.assertEqual(self.a.unlock(self.lock_of(self.a)), nlm.S_GRANTED)
        for what in ("locks", "waiters"):
            self.assertEqual(self.rest.get(f"/api/v1/{what}").json[what], [])


class InOrder(Exported):
    """What a client sends without waiting for replies: a file has to be looked at first for a LOCK, and not for what
    takes it back."""

    def each_time(self, how):
        """Many times, each in a file that no call has named yet."""
        for _ in range(10):
            self.fh = self.handle_of(self.make_file())
            yield lambda *calls: self.a.ask_together(calls, how["transport"])

    @each((4,))
    def test_lock_and_unlock(self, how):
        for ask in self.each_time(how):
            lock = self.lock_of(self.a)
            self.assertEqual(ask((nlm.LOCK, lock), (nlm.UNLOCK, lock)), [nlm.S_GRANTED] * 2)
            self.assert_free(lock)

    @each((4,))
    def test_lock_and_cancel(self, how):
        for ask in self.each_time(how):
            held, waiting = self.lock_of(self.b), self.lock_of(self.a, block=True)
            self.assert_granted(self.b, held)
            self.assertEqual(ask((nlm.LOCK, waiting), (nlm.CANCEL, waiting)), [nlm.S_BLOCKED, nlm.S_GRANTED])
            self.assertEqual(self.b.unlock(held), nlm.S_GRANTED)
            self.assert_free(held)

    @each((4,))
    def test_two_locks_and_a_test(self, how):
        """The second needs another right to the file, and the third none."""
        for ask in self.each_time(how):
            shared = self.lock_of(self.a, exclusive=False)
            calls = (nlm.LOCK, shared.but(exclusive=True)), (nlm.LOCK, shared), (nlm.TEST, shared)
            self.assertEqual(ask(*calls), [nlm.S_GRANTED] * 3)
            self.assertFalse(self.assert_held(shared).exclusive)
            self.assertEqual(self.a.unlock(shared), nlm.S_GRANTED)

    @each((4,))
    def test_share_and_unshare(self, how):
        for ask in self.each_time(how):
            mine = self.lock_of(self.a, access=3, deny=3)
            self.assertEqual(ask((nlm.SHARE, mine), (nlm.UNSHARE, mine)), [nlm.S_GRANTED] * 2)
            self.assertEqual(self.b.share(self.lock_of(self.b, access=3, deny=3)), nlm.S_GRANTED)

    @each((4,))
    def test_messages(self, how):
        for ask in self.each_time(how):
            lock = self.lock_of(self.a, cookie=os.urandom(8))
            ask((nlm.LOCK_MSG, lock), (nlm.UNLOCK_MSG, lock))
            for procedure in (nlm.LOCK_RES, nlm.UNLOCK_RES):
                is_it = lambda heard, procedure=procedure: (heard[0], heard[1].cookie) == (procedure, lock.cookie)
                self.assertEqual(self.a.answers.wait(1, is_it)[0][1].stat, nlm.S_GRANTED)
            self.assert_free(lock)


class Asking(Exported):
    """A host that takes no lock is not registered, so the server need not tell it of a restart."""

    settings = ("api.listen=127.0.0.1:0",)

    def test_who_only_asks_is_no_client(self):
        lock = self.lock_of(self.c, name="only-asks")
        for procedure in (nlm.TEST, nlm.UNLOCK, nlm.CANCEL):
            for transport in ("udp", "tcp"):
                self.c.ask(procedure, lock, transport=transport)
        self.c.free_all("only-asks")
        clients = self.rest.get("/api/v1/clients").json["clients"]
        self.assertEqual([client["id"] for client in clients if "only-asks" in client["id"]], [])


class KnownHandles(Exported):
    """The server remembers what a handle is, for one list of exports."""

    BOTH = ("{{path: {base}/data, name: /data, squash: none}}", "{{path: {base}/more, name: /more, squash: none}}")
    exports = BOTH
    folders = ("data", "more")

    def reload(self, exports):
        self.write_config(exports)
        n = self.daemon.log.count("configuration loaded again")
        self.daemon.process.send_signal(signal.SIGHUP)
        self.until(lambda: self.daemon.log.count("configuration loaded again") > n, "it has reloaded")

    def test_an_export_that_is_gone(self):
        fh = self.handle_of(self.make_file("more"), "/more", "more")
        lock = self.lock_of(self.a, fh=fh)
        for _ in range(3):
            self.assert_granted(self.a, lock)
            self.release(lock)
        self.addCleanup(self.reload, self.BOTH)
        self.reload(self.BOTH[:1])
        self.assertEqual(self.a.lock(lock), nlm.S_STALE_FH)
        self.assert_granted(self.a, self.lock_of(self.a))
        self.release(self.lock_of(self.a))
        self.reload(self.BOTH)
        self.assert_granted(self.a, lock)
        self.release(lock)

    def test_a_handle_that_is_not_quite_a_known_one(self):
        lock = self.lock_of(self.a)
        self.assert_granted(self.a, lock)
        for at in range(len(self.fh)):
            forged = bytearray(self.fh)
            forged[at] ^= 1
            self.assertEqual(self.a.lock(lock.but(fh=bytes(forged), offset=500, length=1)), nlm.S_STALE_FH, at)
        for changed in (self.fh[:-1], self.fh + b"\0", self.fh[:20], self.fh[:4]):
            self.assertEqual(self.a.lock(lock.but(fh=changed)), nlm.S_STALE_FH)
        self.release(lock)


if __name__ == "__main__":
    main()
