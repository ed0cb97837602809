"""Transactions of producers (KIP-98, KIP-360, KIP-447): state machine, `__transaction_state`, markers."""
