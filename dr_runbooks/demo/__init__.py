"""The demonstration: two datacenters under load, one is lost, and every promise is measured."""
