"""Slots against a model of them in a few lines of Python, on both backends: slots acquired, released, and expired.

Hypothesis plays several processes, lets time pass, and lets two of them ask at the same moment: then the answers must
be those of one order or of the other. `make soak` plays much longer, and different games each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.proof.workers import LONG
from tests.slots.conftest import Backend, PostgresBackend, RedisBackend
from tests.slots.redis_server import RedisServer
from weighbridge.delivery.group_key import GroupKey
from weighbridge.delivery.slots.base import Slot, Slots, global_key, site_key
from weighbridge.postgres.transactions import Database

# In minutes, so that the real time that a game takes does not count.
LEASE = 60
PAUSES = (5, 25, 61)
GROUPS = [GroupKey(UUID(int=n), provider) for n in (1, 2, 3) for provider in ("google_ads", "meta_capi")]

PLAY = settings(
    max_examples=400 if LONG else 30,
    stateful_step_count=60 if LONG else 30,
    derandomize=not LONG,
    database=None,
    deadline=None,
    phases=(Phase.generate, Phase.shrink) if LONG else (Phase.generate,),
    suppress_health_check=list(HealthCheck),
)


@dataclass
class Model:
    """The whole of it: who holds what, and until when."""

    per_site: int
    per_provider: int
    now: int = 0
    until: dict[str, dict[UUID, int]] = field(default_factory=dict)

    def acquire(self, group: GroupKey, token: UUID) -> bool:
        keys = {site_key(group): self.per_site}
        if self.per_provider:
            keys[global_key(group)] = self.per_provider
        if any(len(self.live(key)) >= most for key, most in keys.items()):
            return False
        for key in keys:
            self.until.setdefault(key, {})[token] = self.now + LEASE
        return True

    def release(self, token: UUID) -> None:
        for held in self.until.values():
            held.pop(token, None)

    def live(self, key: str) -> set[UUID]:
        return {token for token, until in self.until.get(key, {}).items() if until > self.now}

    def agrees(self, groups: Sequence[GroupKey], held: Sequence[Slot | None]) -> bool:
        """Whether these are the answers to give, one after the other. It takes them over."""
        answers = []
        for group, each in zip(groups, held, strict=True):
            token = each.token if each else UUID(int=0)
            answers.append(self.acquire(group, token) == (each is not None))
        return all(answers)


groups = st.lists(st.sampled_from(GROUPS), min_size=1, max_size=6)


class Game(RuleBasedStateMachine):
    backend: Backend
    runner: asyncio.Runner

    @initialize(per_site=st.integers(1, 3), per_provider=st.integers(0, 5))
    def start(self, per_site: int, per_provider: int) -> None:
        self.backend.clear()
        self.model = Model(per_site, per_provider)
        lease = timedelta(minutes=LEASE)
        self.processes: list[Slots] = [self.backend.slots(per_site, per_provider, lease) for _ in range(3)]
        self.known: list[Slot] = []  # ever held by anybody, so also what was given back or has ended

    def teardown(self) -> None:
        for process in getattr(self, "processes", []):
            self.runner.run(process.close())

    @rule(who=st.integers(0, 2), wanted=groups)
    def acquire(self, who: int, wanted: list[GroupKey]) -> None:
        held = self.runner.run(self.processes[who].acquire(wanted))
        self._know(wanted, held)
        assert self.model.agrees(wanted, held)

    @rule(one=groups, other=groups)
    def acquire_at_the_same_moment(self, one: list[GroupKey], other: list[GroupKey]) -> None:
        async def both() -> list[list[Slot | None]]:
            return await asyncio.gather(self.processes[0].acquire(one), self.processes[1].acquire(other))

        first, second = self.runner.run(both())
        self._know(one, first)
        self._know(other, second)
        forward, backward = deepcopy(self.model), deepcopy(self.model)
        if forward.agrees(one, first) and forward.agrees(other, second):
            self.model = forward
        else:
            assert backward.agrees(other, second)
            assert backward.agrees(one, first)
            self.model = backward

    @rule(who=st.integers(0, 2), which=st.lists(st.integers(0, 50), max_size=6))
    def release(self, who: int, which: list[int]) -> None:
        """Also twice, also another's, also what has ended long ago."""
        held = [self.known[n % len(self.known)] for n in which] if self.known else []
        self.runner.run(self.processes[who].release(held))
        for each in held:
            self.model.release(each.token)

    @rule(minutes=st.sampled_from(PAUSES))
    def pass_time(self, minutes: int) -> None:
        self.backend.age(timedelta(minutes=minutes))
        self.model.now += minutes

    @invariant()
    def the_backend_holds_what_the_model_holds(self) -> None:
        if not hasattr(self, "model"):
            return
        kept, keys = (
            self.backend.held(),
            {global_key(each) for each in GROUPS} | {site_key(each) for each in GROUPS},
        )
        ended = {
            t for held in self.model.until.values() for t, until in held.items() if until <= self.model.now
        }
        for key in keys:
            assert kept.pop(key, set()) - ended == self.model.live(key)
        assert kept == {}

    def _know(self, wanted: Sequence[GroupKey], held: Sequence[Slot | None]) -> None:
        assert [each.key for each in held if each] == [
            p for p, each in zip(wanted, held, strict=True) if each
        ]
        self.known += [each for each in held if each]


@contextmanager
def _postgres(url: str, runner: asyncio.Runner) -> Iterator[Backend]:
    db = Database(url)
    runner.run(db.open())
    with closing(PostgresBackend(url, db)) as backend:
        yield backend
    runner.run(db.close())


@pytest.mark.parametrize("where", ["postgres", "redis"])
def test_slots_do_what_the_model_does(where: str, database_url: str, tmp_path: Path) -> None:
    with asyncio.Runner() as runner:
        if where == "postgres":
            with _postgres(database_url, runner) as backend:
                _play(backend, runner)
        else:
            with RedisServer(tmp_path / "redis") as server:
                _play(RedisBackend(server), runner)


def _play(backend: Backend, runner: asyncio.Runner) -> None:
    game = type("Played", (Game,), {"backend": backend, "runner": runner})
    run_state_machine_as_test(game, settings=PLAY)
