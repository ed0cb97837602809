"""What groups have committed: the rules for taking a commit, and for forgetting one (KIP-211)."""
