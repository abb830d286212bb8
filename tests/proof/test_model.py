"""The queue against a model of it: claim, lease, heartbeat, fence, takeover, release, resume, in any order.

Hypothesis plays several workers in several workspaces on a real database, and moves its clock. A model in a few lines
of Python says what must come of each step; after each step all that the database holds is compared with it. Attempts
may also stay inside a fenced transaction while others go on, and be taken over there.

`make soak` plays much longer and different games each time.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar
from uuid import UUID, uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.proof.queue_model import (
    BOTH,
    CEILING,
    LEASE,
    MAX_CRASHES,
    PAUSES,
    PER_WORKSPACE,
    WORKSPACES,
    Announcement,
    Piece,
    QueueModel,
    Try,
    World,
    minutes,
)
from tests.proof.workers import LONG, until
from weighbridge.engine import outbox, recover
from weighbridge.model.errors import LeaseLost
from weighbridge.model.states import MOVES, Status
from weighbridge.model.upload import Bins, Watermark
from weighbridge.postgres.transactions import Lease, Tx
from weighbridge.uploads import queue
from weighbridge.uploads.queue import NewUpload, Release, Staged, UploadResult

T = TypeVar("T")

PLAY = settings(
    max_examples=1000 if LONG else 60,
    stateful_step_count=80 if LONG else 40,
    derandomize=not LONG,  # the same games in every run
    database=None,
    deadline=None,
    phases=(Phase.generate, Phase.shrink) if LONG else (Phase.generate,),  # to shrink a game takes minutes
    suppress_health_check=list(HealthCheck),
)


class Queue(QueueModel):
    def teardown(self) -> None:
        for each in self._opened():
            self._leave(each, error=RuntimeError("the game is over"))
        if sys.exc_info()[0] is None:
            self._claim_all_at_once()

    def _claim_all_at_once(self) -> None:
        """The end of a game, as who gets what is open; nobody may get what nobody may have."""

        async def rush() -> list[queue.Claimed]:
            return await asyncio.gather(*(self._claim(BOTH) for _ in range(6)))

        self.recover(late=False)
        free = {piece.id for piece in self.pieces.values() if self._claimable(piece, BOTH)}
        claimed = [(each.lease, each.upload) for each in self.world.run(rush()) if each.lease and each.upload]
        assert len({upload.id for _, upload in claimed}) == len(claimed)
        assert {upload.id for _, upload in claimed} <= free
        assert claimed or not free, "somebody must win"
        for each in claimed:
            self._take(*each)
        self.the_database_agrees_with_the_model()
        self.live_attempts_are_the_ones_that_should_be_and_never_too_many()

    # Uploads come in, time passes ---------------------------------------------------------------------------

    @initialize(
        workspaces=st.lists(st.sampled_from(WORKSPACES), min_size=3, max_size=8),
        done=st.lists(st.integers(0, 13), min_size=8, max_size=8),
    )
    def start(self, workspaces: list[UUID], done: list[int]) -> None:
        """A few uploads, most of them under way."""
        for workspace in workspaces:
            self.receive(workspace)
        for _ in workspaces[1:]:
            self.claim(BOTH)
        for attempt, steps in zip(self._idle(), done, strict=False):
            self._work(attempt, steps)

    @precondition(lambda self: len(self.pieces) < 12)
    @rule(workspace=st.sampled_from(WORKSPACES))
    def receive(self, workspace: UUID) -> None:
        number = len(self.pieces)
        new = NewUpload(
            workspace,
            None,
            "meta",
            "manual",
            "ads",
            None,
            "file",
            "csv",
            number.to_bytes(32, "big"),
            byte_size=1,
        )
        upload_id = self._tx(lambda tx: queue.receive(tx, new), "weighbridge_intake", workspace)
        assert isinstance(upload_id, UUID)
        self.pieces[upload_id] = Piece(upload_id, workspace, number)

    @rule(pause=st.sampled_from(PAUSES))
    def time_passes(self, pause: int) -> None:
        self.world.query("UPDATE weighbridge.clock SET shift = shift + %s", (minutes(pause),))
        self.now += pause

    # Claims and leases --------------------------------------------------------------------------------------

    @rule(sources=st.sampled_from([BOTH, BOTH, BOTH[:1], BOTH[1:]]))
    def claim(self, sources: tuple[Status, ...]) -> None:
        """What is overdue is taken back first, in the same statement, and can be claimed at once."""
        if any(each.opened for each in self._overdue()):
            self.recover(late=False)  # a session that is ended lets go of its attempt a moment later
        overdue = self._overdue()
        self._take_back(overdue)
        expected = self._next(sources)
        claimed = self.world.run(self._claim(sources))
        assert Counter(each.subject for each in claimed.abandoned) == Counter(
            t.lease.subject for t in overdue
        )
        assert (claimed.upload and claimed.upload.id) == (expected and expected.id)
        if claimed.lease:
            self._take(claimed.lease, claimed.upload)

    @precondition(lambda self: self.tries)
    @rule(data=st.data())
    def heartbeat(self, data: st.DataObject) -> None:
        # A beat waits for a transaction of its own attempt that is about to commit; here nobody would commit it.
        beating = [t for t in self.tries.values() if not (t.opened and t.opened.wrote)]
        chosen = data.draw(st.lists(st.sampled_from(beating), unique_by=id, max_size=4)) if beating else []
        alive = self.world.query(
            "SELECT weighbridge.heartbeat(%s, %s, %s)",
            ([each.lease.token for each in chosen], minutes(LEASE), minutes(CEILING)),
        )
        assert {token for (token,) in alive} == {each.lease.token for each in chosen if each.live}
        for each in chosen:
            if each.live:
                each.until = min(self.now + LEASE, each.progressed + CEILING)

    @rule(late=st.booleans())
    def recover(self, late: bool) -> None:
        """Everything that is overdue is taken back, even from inside a transaction; nothing else is."""
        if late:
            self.time_passes(LEASE + 1)
        overdue = self._overdue()
        for each in overdue:
            if each.opened:
                each.opened.ended_by_takeover = True
        taken: Counter[UUID] = Counter()

        def all_taken() -> bool:
            # A session that is ended here lets go of its attempt a moment later.
            recovered = self._tx(lambda tx: recover.recover(tx, MAX_CRASHES))
            taken.update(each.subject for each in recovered)
            return taken.total() >= len(overdue)

        until(all_taken, within=5)
        assert taken == Counter(each.lease.subject for each in overdue)
        self._take_back(overdue)

    # The work of an attempt ---------------------------------------------------------------------------------

    @precondition(lambda self: self._idle())
    @rule(data=st.data(), steps=st.sampled_from([1, 2, 3, 12]))
    def work(self, data: st.DataObject, steps: int) -> None:
        """The next things that the attempt has to do, a transaction each."""
        self._work(data.draw(st.sampled_from(self._idle())), steps)

    @precondition(lambda self: self._idle())
    @rule(data=st.data(), writes=st.booleans(), freezes=st.booleans(), hides=st.booleans())
    def stay_in_a_transaction(self, data: st.DataObject, writes: bool, freezes: bool, hides: bool) -> None:
        """Until another rule ends it; or past the lease, so that the attempt is taken over there.

        A session that hides its name cannot be ended by those who would take over: they have to leave it alone.
        """
        attempt = data.draw(st.sampled_from(self._idle()))
        self._enter(attempt)
        if hides:
            self._hide(attempt)
        if writes:
            self._write(attempt)
        if freezes:
            self.recover(late=True)
            self._leave(attempt)

    @precondition(lambda self: self._opened())
    @rule(data=st.data(), commits=st.booleans())
    def end_a_transaction(self, data: st.DataObject, commits: bool) -> None:
        attempt = data.draw(st.sampled_from(self._opened()))
        self._leave(attempt, error=None if commits else RuntimeError("changed its mind"))

    @precondition(lambda self: self._idle())
    @rule(data=st.data(), again=st.booleans())
    def end_an_attempt_early(self, data: st.DataObject, again: bool) -> None:
        attempt = data.draw(st.sampled_from(self._idle()))
        ways = {
            Status.PROCESSING: [self._release, self._fail],
            Status.STAGING_COMPLETE: [self._release, self._release_staged],
            Status.PROMOTING: [self._release, self._fail],
        }[attempt.piece.status]
        data.draw(st.sampled_from(ways))(attempt, data)
        attempt.live = False
        if again:
            self._go_on_with(attempt.piece)

    def _release(self, attempt: Try, data: st.DataObject) -> None:
        delay, failed = data.draw(st.sampled_from([0, 0, 30])), data.draw(st.booleans())
        self._tx(lambda tx: queue.release(tx, attempt.lease, Release(minutes(delay), failed, "trouble")))
        piece = attempt.piece
        piece.run_after, piece.failures = self.now + delay, piece.failures + failed
        self._back(piece)

    def _fail(self, attempt: Try, _: st.DataObject) -> None:
        self._tx(lambda tx: queue.fail(tx, attempt.lease, "code", "text"))
        self._move(attempt.piece, Status.FAILED)

    def _release_staged(self, attempt: Try, _: st.DataObject) -> None:
        self._tx(lambda tx: queue.release_staged(tx, attempt.lease))

    @precondition(lambda self: self._idle(Status.STAGING_COMPLETE, Status.PROMOTING))
    @rule(data=st.data(), changed=st.booleans(), again=st.booleans())
    def staging_is_gone(self, data: st.DataObject, changed: bool, again: bool) -> None:
        """The program that stages again may be another version, and stage something else."""
        attempt = data.draw(st.sampled_from(self._idle(Status.STAGING_COMPLETE, Status.PROMOTING)))
        self._tx(lambda tx: queue.restage(tx, attempt.lease))
        attempt.live = False
        self._move(attempt.piece, Status.PENDING)
        attempt.piece.staged = {}
        attempt.piece.digest += changed
        if again:
            self._go_on_with(attempt.piece)

    @precondition(lambda self: any(p.status == Status.PENDING and p.staged for p in self.pieces.values()))
    @rule(data=st.data())
    def the_rows_are_judged_otherwise(self, data: st.DataObject) -> None:
        """Half staged and released, and then it is past midnight, or there is a newer version."""
        half = [p for p in self.pieces.values() if p.status == Status.PENDING and p.staged]
        piece = data.draw(st.sampled_from(half))
        piece.digest += 1
        self._go_on_with(piece)

    @precondition(lambda self: self._idle(Status.PROCESSING))
    @rule(data=st.data())
    def finish_what_is_not_being_promoted(self, data: st.DataObject) -> None:
        """The guard stops a worker that gets its own steps wrong."""
        attempt = data.draw(st.sampled_from(self._idle(Status.PROCESSING)))
        with pytest.raises(psycopg.Error, match="is not an allowed transition"):
            self._tx(
                lambda tx: queue.finish(tx, attempt.lease, UploadResult(Status.COMPLETED, 0), ["audit_log"])
            )

    @precondition(lambda self: self._lost())
    @rule(data=st.data())
    def a_lost_attempt_tries_to_go_on(self, data: st.DataObject) -> None:
        """Every write there is raises LeaseLost; the invariants see that nothing changed."""
        lease = data.draw(st.sampled_from(self._lost())).lease
        write = data.draw(st.sampled_from(_WRITES))
        with pytest.raises(LeaseLost):
            self._tx(lambda tx: write(tx, lease))
        with pytest.raises(LeaseLost):
            self.world.run(self.world.db.fenced(lease, "weighbridge_promote").__aenter__())

    # Operators and announcements ----------------------------------------------------------------------------

    @precondition(lambda self: self.pieces)
    @rule(data=st.data(), again=st.booleans())
    def retry(self, data: st.DataObject, again: bool) -> None:
        """An operator opens an upload again; what is announced already is not announced again."""
        ended = [
            p for p in self.pieces.values() if p.status in (Status.FAILED, Status.PARTIAL, Status.COMPLETED)
        ]
        piece = data.draw(st.sampled_from(ended or list(self.pieces.values())))
        # A transaction that is open here would make the operator wait.
        if any(t.subject is piece and t.opened for t in self.tries.values()):
            return
        status = self._tx(lambda tx: queue.retry(tx, piece.id, force_partial=False, actor="someone"))
        if piece.status in (Status.FAILED, Status.PARTIAL):
            self._move(piece, Status.PENDING)
            kept = ("written", "announced", "digest", "staging_digest", "staged_digest")
            anew = Piece(piece.id, piece.workspace, piece.number, resets=piece.resets + 1)
            vars(piece).update({name: value for name, value in vars(anew).items() if name not in kept})
        assert status == piece.status
        if again:
            self._go_on_with(piece)

    @precondition(lambda self: self.announcements)
    @rule()
    def claim_announcements(self) -> None:
        live = {id(t.subject) for t in self.tries.values() if t.live}
        due = {
            a.upload
            for a in self.announcements.values()
            if not a.over and a.run_after <= self.now and id(a) not in live
        }
        wish = outbox.EventClaimRequest("test", ("audit_log",), minutes(LEASE), limit=20)
        claimed = self._tx(lambda tx: outbox.claim(tx, wish))
        assert sorted(UUID(each.payload["upload_id"]) for each in claimed) == sorted(due)
        by_upload = {UUID(each.payload["upload_id"]): each for each in claimed}
        for subject in [self.announcements[upload] for upload in self.announcements if upload in by_upload]:
            each = by_upload[subject.upload]
            self.tries[each.lease.token] = Try(each.lease, subject, self.now + LEASE, self.now)

    @precondition(lambda self: self._announcing())
    @rule(data=st.data(), well=st.booleans())
    def announce(self, data: st.DataObject, well: bool) -> None:
        attempt = data.draw(st.sampled_from(self._announcing()))
        delivery = outbox.EventDelivery(attempt.lease, uuid4(), "audit_log", 0, "", {})
        subject = attempt.subject
        assert isinstance(subject, Announcement)
        if well:
            self._tx(lambda tx: outbox.finish(tx, delivery))
            subject.over = True
        else:
            self._tx(lambda tx: outbox.fail(tx, delivery, minutes(30), "trouble"))
            subject.failures, subject.run_after = subject.failures + 1, self.now + 30
        attempt.live = False

    # What must hold after each step -------------------------------------------------------------------------

    @invariant()
    def the_database_agrees_with_the_model(self) -> None:
        rows = self.world.query(
            "SELECT d.id, d.status, d.failures, d.crashes, d.staged, d.watermark_entity, d.watermark_seq,"
            " d.promoted_rows, ARRAY(SELECT m.line FROM daily_metrics m WHERE m.upload_id = d.id ORDER BY 1),"
            " d.event_emitted, (SELECT count(*) FROM weighbridge.events e WHERE e.upload_id = d.id)"
            " FROM data_uploads d"
        )
        assert {row[0]: row[1:] for row in rows} == {piece.id: piece.seen for piece in self.pieces.values()}

    @invariant()
    def live_attempts_are_the_ones_that_should_be_and_never_too_many(self) -> None:
        rows = self.world.query(
            "SELECT lease_token, queue, subject, workspace_id FROM weighbridge.attempts WHERE closed_at IS NULL"
        )
        assert {row[0] for row in rows} == {token for token, each in self.tries.items() if each.live}
        assert max(Counter(row[2] for row in rows).values(), default=0) <= 1
        at_work = Counter(row[3] for row in rows if row[1] == "uploads")
        assert max(at_work.values(), default=0) <= PER_WORKSPACE

    @invariant()
    def only_the_moves_that_the_model_made_happened(self) -> None:
        seen = Counter(self.world.query("DELETE FROM moved RETURNING upload, before, after"))
        assert seen == self.moves
        declared = {(source, move.target) for move in MOVES.values() for source in move.sources}
        assert {(Status(before), Status(after)) for _, before, after in seen} <= declared
        self.moves.clear()

    @invariant()
    def watermarks_go_back_only_by_a_reset(self) -> None:
        for piece in self.pieces.values():
            place, resets = self.before.get(piece.id, ((-1, 0), 0))
            assert piece.place >= place or piece.resets > resets
            self.before[piece.id] = (piece.place, piece.resets)

    # Whole pieces of work -----------------------------------------------------------------------------------

    def _go_on_with(self, piece: Piece) -> None:
        """Claim what there is until this one is among it, and work on it."""
        while self._next(BOTH) and not any(t.subject is piece for t in self._idle()):
            self.claim(BOTH)
        for attempt in self._idle():
            if attempt.subject is piece:
                self._work(attempt, 13)

    def _work(self, attempt: Try, steps: int) -> None:
        for _ in range(steps):
            if attempt.live:
                self._enter(attempt)
                self._write(attempt)
                self._leave(attempt)
                self.the_database_agrees_with_the_model()


_WRITES: list[Callable[[Tx, Lease], Awaitable[None]]] = [
    lambda tx, lease: queue.release(tx, lease, Release()),
    lambda tx, lease: queue.fail(tx, lease, "code", "text"),
    lambda tx, lease: queue.release_staged(tx, lease),
    lambda tx, lease: queue.restage(tx, lease),
    lambda tx, lease: queue.begin_staging(tx, lease, b""),
    lambda tx, lease: queue.note_rows_read(tx, lease, 7),
    lambda tx, lease: queue.note_staged(tx, lease, {"campaign": 7}),
    lambda tx, lease: queue.finish_staging(tx, lease, Staged(Bins(accepted=7), (), {}, (), b"")),
    lambda tx, lease: queue.begin_promotion(tx, lease, patient=False),
    lambda tx, lease: queue.advance(tx, lease, Watermark("daily_metric", 7), {}, 7),
    lambda tx, lease: queue.finish(tx, lease, UploadResult(Status.COMPLETED, 0), ["audit_log"]),
    lambda tx, lease: outbox.finish(tx, outbox.EventDelivery(lease, uuid4(), "", 0, "", {})),
    lambda tx, lease: outbox.fail(tx, outbox.EventDelivery(lease, uuid4(), "", 0, "", {}), None, "text"),
]


@contextmanager
def _world(url: str) -> Iterator[World]:
    world = World(url)
    try:
        yield world
    finally:
        world.close()


def test_the_queue_does_what_its_model_does(database_url: str) -> None:
    with _world(database_url) as world:
        run_state_machine_as_test(lambda: Queue(world), settings=PLAY)
