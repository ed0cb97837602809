"""Ports that processes are told to listen on: different ones, whatever is seeded."""

import random

from topology.runtime import free_ports


def test_a_seed_does_not_make_two_processes_choose_alike() -> None:
    """Tests that run side by side, each with the same seed, would take each other's."""
    chosen = []
    for _ in range(2):
        random.seed(7)
        chosen.append(free_ports(4))
    assert chosen[0] != chosen[1]


def test_none_is_given_twice() -> None:
    ports = free_ports(500)
    assert len(set(ports)) == 500
