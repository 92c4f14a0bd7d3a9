#!/usr/bin/python3
"""Makes tern.3, the manual page of the C interface, from the comments and declarations of tern.h.

    header_page.py HEADER VERSION > tern.3
"""

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


def page(header, version):
    introduction = re.match(r"/\*.*?\*/", header, flags=re.DOTALL).group(0)
    parts = SECTION.split(header)
    if len(parts) < 3:
        raise SystemExit("header_page: the header has no section")
    out = TITLE.format(version=version) + paragraphs(introduction)
    for name, text in zip(parts[1::2], parts[2::2]):
        out += f".SH {name.upper()}\n"
        for comment, declarations in blocks(text.split("#ifdef __cplusplus")[0]):
            if declarations:
                out += ".PP\n.nf\n" + "\n".join(map(escaped, declarations.split("\n"))) + "\n.fi\n"
            if comment:
                out += paragraphs(comment)
    return out + END


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        print(page(file.read(), sys.argv[2]), end="")


if __name__ == "__main__":
    main()
