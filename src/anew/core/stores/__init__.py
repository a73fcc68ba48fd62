"""Stores: the aggregate, the life cycle of its versions, their settings, plans and the records of their rebuilds."""
