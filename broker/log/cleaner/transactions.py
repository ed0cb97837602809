"""Which transactional batches and markers compaction may drop (Kafka's CleanedTransactionMetadata).

Records of aborted transactions go at once. A marker stays while any batch of its transaction was still
there when the cleaner came by, so it goes a round later at the earliest. Fed with the batches of a log in
order, from its start on. Plain state; knows nothing of keys or files.
"""

from collections.abc import Iterable

from broker.log.txn_index import AbortedTxn


class CleanedTransactions:
    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        """`aborted`: all of the log, also those whose marker is above what is cleaned."""
        self._waiting = sorted(aborted, key=lambda txn: txn.first_offset, reverse=True)
        self._aborted: dict[int, AbortedTxn] = {}
        """Producer id -> its aborted transaction that we are in."""
        self._seen: set[int] = set()
        """Producers in an aborted transaction of which a data batch was seen."""
        self._committed: set[int] = set()

    def data(self, producer_id: int, last_offset: int, transactional: bool) -> bool:
        """A data batch; whether it belongs to an aborted transaction and may go."""
        self._begin(last_offset)
        if not transactional:
            return False
        if producer_id in self._aborted:
            self._seen.add(producer_id)
            return True
        self._committed.add(producer_id)
        return False

    def marker(self, producer_id: int, offset: int, commit: bool | None) -> tuple[bool, AbortedTxn | None]:
        """A control batch; `commit` None when it holds no marker any more.

        Returns whether nothing is left of its transaction, and the entry that the new aborted index needs.
        """
        self._begin(offset)
        if commit is None:
            return True, None
        if commit:
            left = producer_id in self._committed
            self._committed.discard(producer_id)
            return not left, None
        txn = self._aborted.pop(producer_id, None)
        if txn is None or producer_id not in self._seen:
            return True, None
        self._seen.discard(producer_id)
        return False, txn

    def _begin(self, offset: int) -> None:
        while self._waiting and self._waiting[-1].first_offset <= offset:
            txn = self._waiting.pop()
            self._aborted.setdefault(txn.producer_id, txn)
