"""ASCII characters that LaTeX (T1 fonts) reads as commands or prints as others, and how to print them."""

ESCAPES = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "`": r"\textasciigrave{}",
    '"': r"\textquotedbl{}",
    "[": "{[}",  # after \\ it would begin an optional argument
    "]": "{]}",
    "*": "{*}",  # likewise
}
