"""The classes and functions of C++ sources, read lexically: which there are, in which scope, with how
many parameters, on which lines. It knows this code base's C++ (clang-formatted, brace-balanced) and is no
compiler: macros are not expanded, both sides of an #else are read, bodies of functions are skipped, with
the lambdas and local classes in them."""

import re
from dataclasses import dataclass, field

TOKEN = re.compile(r"""
    (?P<skip> \s+ | //(?:\\\n|[^\n])* | /\*.*?\*/ | (?<![^\n])[ \t]*\#(?:\\\n|/\*.*?\*/|[^\n])* )
  | (?P<raw> (?:u8|[uUL])?R"(?P<fence>[^\s()\\]{0,16})\(.*?\)(?P=fence)" )
  | (?P<text> (?:u8|[uUL])?"(?:\\.|[^"\\\n])*" | (?:u8|[uUL])?'(?:\\.|[^'\\\n])*' )
  | (?P<number> \.?\d(?:[eEpP][+-]|'(?=\w)|[\w.])* )
  | (?P<word> [A-Za-z_]\w* )
  | (?P<mark> :: | ->\*? | \.\.\. | <=> | <<=? | [<>=!+*/%&|^-]= | && | \|\| | \+\+ | -- | . )
""", re.VERBOSE | re.DOTALL)

CLOSES = {"(": ")", "[": "]", "{": "}"}
CLASS_WORDS = {"class", "struct", "union"}
# Words before a parenthesis that is not the list of a function's parameters.
NOT_A_NAME = {"alignas", "decltype", "noexcept", "explicit", "requires", "__attribute__", "sizeof",
              "static_assert", "if", "for", "while", "switch", "return"}
# Declarations that hold neither a class nor a function of their own.
WITHOUT_OUTLINE = {"using", "typedef", "static_assert", "friend", "concept"}
ACCESS = {"public", "private", "protected"}
# Scopes that C++ code does not see as names: a kernel is one function, whatever its targets are.
TRANSPARENT = {"HWY_NAMESPACE", "inline"}


@dataclass
class Token:
    kind: str
    text: str
    line: int


@dataclass
class Place:
    file: str
    first: int
    last: int

    def __str__(self):
        return f"{self.file}:{self.first}"

    def lines(self):
        return self.last - self.first + 1


@dataclass
class Class:
    """A class, with the places of its body and of all out-of-line definitions of its members."""
    name: str
    places: list = field(default_factory=list)
    nested_lines: int = 0
    methods: int = 0

    def lines(self):
        return sum(place.lines() for place in self.places) - self.nested_lines


@dataclass
class Function:
    """A function: its declarations and its definition, and overloads with as many parameters."""
    name: str
    parameters: int
    places: list = field(default_factory=list)
    # Its signature is that of the class it derives from.
    overrides: bool = False


class Unreadable(Exception):
    """The outline of a file cannot be told."""


def tokens_of(text):
    tokens = []
    line = 1
    for match in TOKEN.finditer(text):
        if match.lastgroup != "skip":
            kind = "text" if match.lastgroup in ("raw", "fence") else match.lastgroup
            tokens.append(Token(kind, match.group(), line))
        line += match.group().count("\n")
    return tokens


class Outline:
    """Collects classes and functions over many files; `finish()` once all are read."""

    def __init__(self):
        self.classes = {}
        self.functions = {}
        self.definitions_ = []

    def read(self, file, tokens):
        """Raises: Unreadable."""
        Reader(self, file, tokens).read()

    def finish(self):
        """Adds the out-of-line definitions to the classes of which they are."""
        for scope, owner, place in self.definitions_:
            # The innermost enclosing scope that has a class of that name.
            for depth in range(len(scope), -1, -1):
                found = self.classes.get("::".join(scope[:depth] + owner))
                if found:
                    found.places.append(place)
                    break
        self.definitions_ = []

    def add_function(self, scope, path, parameters, place, overrides):
        # Names of unnamed namespaces are a target's, for its sources may be compiled as one.
        name = "::".join(word for word in scope + path if not word.startswith("("))
        # What is defined outside of its class is written in a scope around it.
        if len(path) > 1:
            self.definitions_.append((scope, path[:-1], place))
        function = self.functions.setdefault((name, parameters), Function(name, parameters))
        function.places.append(place)
        function.overrides |= overrides


@dataclass
class Head:
    """A declaration up to its body or its end: tokens, parenthesized and <> groups taken together."""
    first: int
    items: list = field(default_factory=list)  # (text, first token, token after it)
    assigned: bool = False

    def texts(self):
        return [item[0] for item in self.items]


class Reader:
    """Reads one file, scope by scope."""

    def __init__(self, outline, file, tokens):
        self.outline_ = outline
        self.file_ = file
        self.tokens_ = tokens
        self.at_ = 0

    def read(self):
        self.read_scope([], None)
        if self.at_ < len(self.tokens_):
            raise Unreadable(f"{self.file_}:{self.tokens_[self.at_].line}: a brace too many")

    # -- tokens

    def text(self, at):
        return self.tokens_[at].text if at < len(self.tokens_) else ""

    def place(self, first, after):
        last = min(after, len(self.tokens_)) - 1
        return Place(self.file_, self.tokens_[first].line, self.tokens_[last].line)

    def after_group(self, at):
        """The token after the group that opens here."""
        waiting = []
        for position in range(at, len(self.tokens_)):
            token = self.tokens_[position]
            if token.text in CLOSES and token.kind == "mark":
                waiting.append(CLOSES[token.text])
            elif waiting and token.kind == "mark" and token.text == waiting[-1]:
                waiting.pop()
                if not waiting:
                    return position + 1
        raise Unreadable(f"{self.file_}:{self.tokens_[at].line}: {self.text(at)} is not closed")

    def after_angles(self, at, end=None):
        """The token after <...>, or None if this < is a comparison."""
        depth = 0
        end = len(self.tokens_) if end is None else end
        while at < end:
            text = self.text(at)
            if text == "<":
                depth += 1
            elif text == ">":
                depth -= 1
                if depth == 0:
                    return at + 1
            elif text in (";", ")", "]", "}"):
                return None
            at = self.after_group(at) if text in CLOSES else at + 1
        return None

    # -- scopes

    def read_scope(self, scope, of_class):
        """Reads declarations up to the brace that closes the scope, or to the end of the file."""
        while self.at_ < len(self.tokens_) and self.text(self.at_) != "}":
            self.read_declaration(scope, of_class)

    def read_declaration(self, scope, of_class):
        while self.text(self.at_) in ACCESS and self.text(self.at_ + 1) == ":":
            self.at_ += 2
        head = Head(self.at_)
        while self.at_ < len(self.tokens_):
            text = self.text(self.at_)
            if text == "}":
                return
            if text == ";":
                self.at_ += 1
                self.end_of_head(head, scope, of_class)
                return
            if text == "{" and not self.is_value(head):
                self.read_body(head, scope, of_class)
                return
            if text == ":" and self.parameters_at(head, of_class) is not None and not head.assigned:
                self.pass_initializers()
                continue
            self.take(head)
            if self.is_call_of_macro(head):
                head = Head(self.at_)

    def take(self, head):
        """Moves the next token, or the group that begins with it, into the head."""
        begin = self.at_
        text = self.text(begin)
        previous = head.items[-1][0] if head.items else ""
        after = begin + 1
        if text == "operator":
            # Its sign is part of the name: operator<, operator(), operator new[].
            after = begin + 3 if self.text(begin + 1) + self.text(begin + 2) in ("()", "[]") else after
            while self.text(after) not in ("(", ";") and after < len(self.tokens_):
                after += 1
            text = "".join(self.text(at) for at in range(begin, after))
        elif text in CLOSES:
            after = self.after_group(begin)
        elif text == "<" and not head.assigned and re.fullmatch(r"\w+", previous):
            angled = self.after_angles(begin)
            text, after = ("<>", angled) if angled else (text, after)
        elif text == "=":
            head.assigned = True
        head.items.append((text, begin, after))
        self.at_ = after

    def is_value(self, head):
        """Whether a brace here begins a value and no body: `= {`, `int x{`, a default inside a concept."""
        texts = head.texts()
        if head.assigned or (texts and texts[0] in WITHOUT_OUTLINE):
            return True
        plain = "(" not in texts and not CLASS_WORDS & set(texts)
        return plain and not {"namespace", "extern", "enum"} & set(texts)

    def is_call_of_macro(self, head):
        """A macro's call that no semicolon ends, before the next declaration."""
        texts = head.texts()
        return (len(texts) == 2 and texts[1] == "(" and texts[0].isupper()
                and self.tokens_[min(self.at_, len(self.tokens_) - 1)].kind == "word"
                and self.text(self.at_) not in ("const", "noexcept", "override", "final", "requires"))

    def read_body(self, head, scope, of_class):
        texts = head.texts()
        if "namespace" in texts:
            names = [text for text in texts if re.fullmatch(r"[A-Za-z_]\w*", text)]
            names = names[names.index("namespace") + 1:] or [f"({self.file_.rpartition('.')[0]})"]
            self.enter(scope + [name for name in names if name not in TRANSPARENT], None)
            return
        if texts and texts[0] == "extern" and len(texts) == 2 and texts[1].startswith('"'):
            self.enter(scope, None)
            return
        parameters = self.parameters_at(head, of_class)
        if "enum" in texts and parameters is None:
            self.at_ = self.after_group(self.at_)
            self.pass_to_semicolon()
        elif CLASS_WORDS & set(texts) and parameters is None:
            self.read_class(head, scope, of_class)
        else:
            self.at_ = self.after_group(self.at_)
            self.end_of_head(head, scope, of_class)

    def enter(self, scope, of_class):
        opened = self.at_
        self.at_ += 1
        self.read_scope(scope, of_class)
        if self.text(self.at_) != "}":
            raise Unreadable(f"{self.file_}:{self.tokens_[opened].line}: {{ is not closed")
        self.at_ += 1

    def read_class(self, head, scope, of_class):
        texts = head.texts()
        begin = next(i for i, text in enumerate(texts) if text in CLASS_WORDS) + 1
        names = []
        for text in texts[begin:]:
            if text == ":":
                break
            # The last name before the bases counts; those before it are macros and attributes.
            if re.fullmatch(r"[A-Za-z_]\w*", text) and text not in ("final", "alignas"):
                names = names + [text] if names and names[-1] == "::" else [text]
            elif text == "::":
                names.append(text)
        names = [name for name in names if name != "::"] or [f"(line {self.tokens_[head.first].line})"]
        name = "::".join(scope + names)
        found = self.outline_.classes.setdefault(name, Class(name))
        self.enter(scope + names, found)
        place = self.place(head.first, self.at_)
        found.places.append(place)
        if of_class:
            of_class.nested_lines += place.lines()
        self.pass_to_semicolon()

    def pass_to_semicolon(self):
        while self.at_ < len(self.tokens_) and self.text(self.at_) not in (";", "}"):
            self.at_ = self.after_group(self.at_) if self.text(self.at_) in CLOSES else self.at_ + 1
        if self.text(self.at_) == ";":
            self.at_ += 1

    def pass_initializers(self):
        """From the colon of a constructor's initializers to its body. In a class also over the width of a
        bit field, after which no initializer comes."""
        self.at_ += 1
        while self.text(self.at_) not in ("{", ";", "}", ""):
            while self.text(self.at_) not in ("(", "{", ";", "}", ""):
                angled = self.after_angles(self.at_) if self.text(self.at_) == "<" else None
                self.at_ = angled or self.at_ + 1
            if self.text(self.at_) in CLOSES:
                self.at_ = self.after_group(self.at_)
            while self.text(self.at_) == "...":
                self.at_ += 1
            if self.text(self.at_) != ",":
                return
            self.at_ += 1

    # -- functions

    def parameters_at(self, head, of_class):
        """Where in the head the parameters of the function are that it declares; None for another."""
        texts = head.texts()
        if not texts or texts[0] in WITHOUT_OUTLINE:
            return None
        for i, text in enumerate(texts):
            if text == "=":
                return None
            if text != "(" or i == 0:
                continue
            name = texts[i - 1]
            if name == "<>" and i > 1:
                name = texts[i - 2]
            if name in NOT_A_NAME:
                continue
            if name.startswith("operator"):
                return i
            if not re.fullmatch(r"[A-Za-z_]\w*", name) or self.is_pointer(head.items[i][1]):
                return None
            return i if self.has_type(texts[:i], of_class) else None
        return None

    def is_pointer(self, opened):
        """Whether a function's address is declared: `void (*name)(...)`. What it points at is counted."""
        return self.text(opened + 1) in ("*", "&") or self.text(opened + 2) == "::" and (
            self.text(opened + 3) == "*")

    @staticmethod
    def has_type(before, of_class):
        """Whether the words before the parameters are a function's: a type and a name, or a constructor.
        Else it is a macro's call."""
        words = [text for text in before if re.fullmatch(r"[A-Za-z_]\w*", text)]
        if len(words) > 1:
            return True
        return of_class is not None and words == [of_class.name.rpartition("::")[2]]

    def end_of_head(self, head, scope, of_class):
        """Adds the function that the head declares, if it is one."""
        at = self.parameters_at(head, of_class)
        if at is None:
            return
        texts = head.texts()
        path = self.path_before(texts, at)
        _, begin, after = head.items[at]
        count = self.count_parameters(begin + 1, after - 1)
        unwritten = head.assigned and texts[-1] in ("default", "delete")
        if of_class and not unwritten:
            of_class.methods += 1
        self.outline_.add_function(scope, path, count, self.place(head.first, self.at_),
                                   bool({"override", "final"} & set(texts[at:])))

    @staticmethod
    def path_before(texts, at):
        """The name before the parameters with its qualifiers: [LaneGroup, submit]."""
        path = []
        i = at - 1
        while i >= 0:
            if texts[i] == "<>":
                i -= 1
            path.insert(0, texts[i])
            i -= 1
            if i >= 0 and texts[i] == "~":
                path[0] = "~" + path[0]
                i -= 1
            if i < 1 or texts[i] != "::":
                break
            i -= 1
        return path

    def count_parameters(self, begin, end):
        if begin == end or (end == begin + 1 and self.text(begin) == "void"):
            return 0
        count = 1
        at = begin
        while at < end:
            text = self.text(at)
            if text in CLOSES:
                at = self.after_group(at)
                continue
            angled = self.after_angles(at, end) if text == "<" else None
            if text == ",":
                count += 1
            at = angled or at + 1
        return count - (1 if self.text(end - 1) == "..." and self.text(end - 2) == "," else 0)
