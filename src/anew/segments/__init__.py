"""The Parquet formats and their manifests: the base files of a store's versions."""
