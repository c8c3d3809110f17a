"""One run of a scenario: its own names, the versions it asks at, and what it asks besides."""

import random
import time

from answers import errors
from codec import full, new_id
from pair import APIS, READING, UNSETTLED, Asked, Channel


class Parted(Exception):
    """The nodes have judged a request otherwise, as they may: what follows would differ by what they did."""


class Play:
    """A scenario asks by this. `level` shifts every API's version down from its newest, around to it again."""

    def __init__(self, pair, name, level, mutator=None):
        self.pair, self.name, self.level, self.mutator = pair, name, level, mutator
        self.random = random.Random(name)
        self.channel = Channel(pair)
        self.channels = [self.channel]

    def another(self, ports=None):
        """A further connection."""
        self.channels.append(Channel(self.pair, ports))
        return self.channels[-1]

    def end(self):
        for channel in self.channels:
            channel.end()

    def new_id(self):
        """An id that a client makes up."""
        return new_id(self.random)

    def named(self, stem):
        return f"{stem}-{self.name}"

    def version(self, api):
        api = APIS[api]
        return api.high - self.level % (api.high - api.low + 1)

    def ask(self, api, channel=None, at=None, about="", **values):
        """Apache Kafka's answer. A difference is told with what it is about."""
        return self.begin(api, channel, at, about, **values)()

    def begin(self, api, channel=None, at=None, about="", **values):
        """Sends, and returns what waits for the answer."""
        channel = channel or self.channel
        version = self.version(api) if at is None else at
        if self.mutator:
            self.mutator.before(self, api, version, values)
        asked = Asked(channel, APIS[api], version, values, f"{self.name} {about}".rstrip())

        def answer():
            found, ours = asked.answers()
            if self.mutator:
                self.go_on(api, found, ours)
            # Without an answer the scenario goes on as if all were well: what follows is compared, too.
            return full(APIS[api].answer, {}, version) if isinstance(found, str) else found

        return answer

    def go_on(self, api, kafka, ours):
        """Ends a run with variants where the nodes are not in the same state any more."""
        is_answer = [not isinstance(one, str) for one in (kafka, ours)]
        is_same = errors(kafka) == errors(ours) if all(is_answer) else not any(is_answer)
        if not is_same and not api.startswith(READING):
            self.part()

    def part(self):
        """Ends this run: the nodes may be in different states."""
        self.pair.parted.add(self.name)
        raise Parted

    def good(self, api, channel=None, at=None, **values):
        """Apache Kafka's answer, which must have no error as soon as the node is that far."""
        deadline = time.monotonic() + 10
        while errors(answer := self.ask(api, channel, at, **values)) & UNSETTLED and time.monotonic() < deadline:
            time.sleep(0.02)
        if errors(answer) - {0} and not self.mutator:
            raise AssertionError(f"{self.name}: {api}: {answer}")
        return answer
