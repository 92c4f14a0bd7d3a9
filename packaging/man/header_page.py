#!/usr/bin/python3
"""Makes tern.3, the manual page of the C interface, from the comments and declarations of its headers.

    header_page.py HEADER ... VERSION > tern.3

The first header begins with the introduction.
"""

import pathlib
import re
import sys

TITLE = """.TH TERN 3 "" "Tern {version}" "Tern Manual"
.SH NAME
tern \\- the C interface of libtern, for collectives between training processes
.SH SYNOPSIS
.nf
#include <tern/tern.h>

cc \\fIprogram\\fP.c $(pkg\\-config \\-\\-cflags \\-\\-libs tern)
.fi
.SH DESCRIPTION
"""
END = """.SH SEE ALSO
.BR ternctl (1),
.BR ternd (8)
"""
SECTION = re.compile(r"/\* -{4} (.+?) -+ \*/\n")


def escaped(line):
    """Text as it is: backslashes, hyphens and what would begin a request mean themselves."""
    line = line.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + line if line[:1] in (".", "'") else line


def paragraphs(comment):
    """The text of a block comment: bullets stay apart, other lines flow."""
    body = re.sub(r"^\s*\* ?", "", comment.strip()[2:-2].strip(), flags=re.MULTILINE)
    out = [".PP"]
    for line in body.split("\n"):
        if line.startswith(" - "):
            out += [".IP \\(bu 2", escaped(line[3:].strip())]
        elif not line.strip():
            out.append(".PP")
        else:
            out.append(escaped(line.strip()))
    return "\n".join(out) + "\n"


def blocks(text):
    """Paragraphs of source between blank lines, a leading comment apart from what it describes."""
    for block in re.split(r"\n\s*\n(?! \*)", text.strip()):
        comment = re.match(r"/\*(?! -{4}).*?\*/\n?", block, flags=re.DOTALL)
        split = comment.end() if comment else 0
        yield block[:split], block[split:].replace("TERN_API ", "").strip()


def sections(headers):
    """Name and text of each."""
    for header in headers:
        parts = SECTION.split(header)
        if len(parts) < 3:
            raise SystemExit("header_page: a header has no section")
        yield from zip(parts[1::2], parts[2::2])


def page(headers, version):
    introduction = re.match(r"/\*.*?\*/", headers[0], flags=re.DOTALL).group(0)
    out = TITLE.format(version=version) + paragraphs(introduction)
    for name, text in sections(headers):
        out += f".SH {name.upper()}\n"
        for comment, declarations in blocks(text.split("#ifdef __cplusplus")[0]):
            if declarations:
                out += ".PP\n.nf\n" + "\n".join(map(escaped, declarations.split("\n"))) + "\n.fi\n"
            if comment:
                out += paragraphs(comment)
    return out + END


def main():
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    headers = [pathlib.Path(name).read_text(encoding="utf-8") for name in sys.argv[1:-1]]
    print(page(headers, sys.argv[-1]), end="")


if __name__ == "__main__":
    main()
