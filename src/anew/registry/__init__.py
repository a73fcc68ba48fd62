"""Schema registries: where the ids of schemas come from when others number them."""
