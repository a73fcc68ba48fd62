"""Wire models of stores: requests, views, routing, and what nodes say of replicas."""
