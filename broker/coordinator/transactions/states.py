"""States of a transactional id and the moves between them, as a table (Kafka's TransactionState).

The numbers are those of the records in `__transaction_state`, the names those that Kafka's tools show.
PREPARE_EPOCH_FENCE exists on the way to PREPARE_ABORT only: fencing writes both in one record, so it is never
stored and never seen by a request.
"""

from enum import IntEnum
from typing import Final


class TxnState(IntEnum):
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def shown(self) -> str:
        """The name in Kafka's tools, like `PrepareCommit`."""
        return self.name.title().replace("_", "")


IDLE: Final = frozenset({TxnState.EMPTY, TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT})
"""Nothing is open: a transaction may begin, and the id may expire."""
ENDING: Final = frozenset({TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT})
"""The outcome is decided and stored; markers are being written."""
MOVES: Final = {
    TxnState.EMPTY: IDLE,
    TxnState.ONGOING: IDLE | {TxnState.ONGOING},
    TxnState.PREPARE_COMMIT: frozenset({TxnState.ONGOING}),
    TxnState.PREPARE_ABORT: IDLE | {TxnState.ONGOING, TxnState.PREPARE_EPOCH_FENCE},
    TxnState.COMPLETE_COMMIT: frozenset({TxnState.PREPARE_COMMIT}),
    TxnState.COMPLETE_ABORT: frozenset({TxnState.PREPARE_ABORT}),
    TxnState.DEAD: IDLE,
    TxnState.PREPARE_EPOCH_FENCE: frozenset({TxnState.ONGOING}),
}
"""State -> states that it may be entered from. Aborting what has not begun is for transactions version 2."""
