"""Several processes that share one link: who has which partition, and what people have asked for."""
