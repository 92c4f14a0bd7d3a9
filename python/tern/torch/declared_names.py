"""The names under which parameters are declared."""

_BYTES = 127  # of a declaration


def declared_name(model: str, own: str) -> str:
    """`model`: the name that tells models of a job apart. Raises ValueError for one that is too
    long."""
    full = f"{model}/{own}"
    if len(full.encode()) > _BYTES:
        raise ValueError(f"the parameter {full} has a name of more than {_BYTES} bytes; exempt it, "
                         "or give its module a shorter name")
    return full
