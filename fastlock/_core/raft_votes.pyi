"""The tally of one campaign."""

from typing import final

@final
class Votes: ...
