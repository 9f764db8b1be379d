"""Reports as one page that opens from a file: tables to sort, and behind each number what it was made from."""
