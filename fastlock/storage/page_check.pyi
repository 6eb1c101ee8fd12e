def check_pages(path: str) -> None:
    """Raises StorageDamaged if the file is not what LMDB left there; an empty or missing file is fine."""
