"""OCI words: reference, registry, archive, layer, store."""
