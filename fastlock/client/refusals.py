"""What the lock table refused, as the error a caller can act on."""

from __future__ import annotations

from fastlock import errors
from fastlock.client.messages import Answer
from fastlock.schema.enums import Argument, Code, SettingId

# Where the answer recommends no delay.
RETRY_AFTER_MS = 100


def refusal(answer: Answer) -> errors.FastlockError:
    """The error for an answer that is not a success."""
    code = answer.code
    if code in (Code.notAcquired, Code.lockDelayed):
        conflict = answer.content if answer.which == "conflict" else {}
        retry_after_s = (conflict.get("retryMs") or RETRY_AFTER_MS) / 1000
        waiters = conflict.get("waiters", 0)
        if code is Code.lockDelayed:
            return errors.LockDelayed(retry_after_s, waiters)
        return errors.NotAcquired(retry_after_s, waiters)
    if code is Code.limitExceeded:
        known = answer.detail in SettingId._value2member_map_
        return errors.LimitExceeded(SettingId(answer.detail).name if known else str(answer.detail))
    if code is Code.invalidArgument:
        known = answer.detail in Argument._value2member_map_
        return errors.InvalidArgument(Argument(answer.detail).name if known else str(answer.detail))
    error = _ERRORS.get(code)
    if error is not None:
        return error()
    return errors.Unavailable(
        f"the cluster answered {code.name}{': ' + answer.message if answer.message else ''}: try again later"
    )


_ERRORS: dict[Code, type[errors.FastlockError]] = {
    Code.leaseLost: errors.LockLost,
    Code.staleToken: errors.StaleToken,
    Code.modeMismatch: errors.ModeMismatch,
    Code.crossSlot: errors.CrossSlot,
    Code.ttlOutOfRange: errors.TtlOutOfRange,
    Code.heldByOther: errors.HeldByOther,
    Code.notFound: errors.NotFound,
    Code.unauthenticated: errors.Forbidden,
    Code.forbidden: errors.Forbidden,
    Code.unsupportedVersion: errors.Incompatible,
    Code.unknownCommand: errors.Incompatible,
}
