"""The parts of `bench/broker.py`: the two sides, the loads, the rows and the report."""
