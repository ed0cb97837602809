"""Parts of `bench.link`: the rows of a link beside MirrorMaker 2."""
