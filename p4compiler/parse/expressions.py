"""Syntax of types, expressions and annotations (P4_16 specification, appendix "P4 grammar")."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fanin.p4compiler import nodes
from fanin.p4compiler.parse.lex import END, NAME, NUMBER, STRING, Token, parse_number
from fanin.p4compiler.source import CompileError, Span, error

RESERVED = frozenset(
    {
        "action", "bool", "bit", "const", "control", "default", "else", "enum", "error", "exit", "extern", "false",
        "header", "header_union", "if", "in", "inout", "int", "match_kind", "out", "package", "parser", "return",
        "select", "string", "struct", "switch", "table", "transition", "true", "tuple", "typedef", "varbit",
        "value_set", "void", "_",
    }
)  # fmt: skip
_TYPE_WORDS = frozenset(("bit", "int", "varbit", "bool", "error", "string", "void", "tuple", "match_kind"))
_OPERATORS = (
    ("||",),
    ("&&",),
    ("==", "!="),
    ("<", ">", "<=", ">="),
    ("|",),
    ("^",),
    ("&",),
    ("<<", ">>"),
    ("+", "-", "++", "|+|", "|-|"),
    ("*", "/", "%"),
)
_WORDS_FOR_OPERATORS = {"and": "&&", "or": "||", "is": "=="}
_LEVEL = {op: level for level, ops in enumerate(_OPERATORS) for op in ops}


class ExpressionParser:
    """Parser of types and expressions, which tracks the names of types because P4's grammar depends on them.

    Syntax errors are raised as CompileError.
    """

    def __init__(self, tokens: list[Token], end: Span) -> None:
        self.tokens = [*tokens, Token(END, "end of file", end)]
        self.at = 0
        self.type_names: set[str] = set()
        # the errors so far, where the rest of the program is wanted in spite of them; None: the first one is raised
        self.failures: list[CompileError] | None = None

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Open a scope for declared names: a name that hid a type denotes the type again afterwards."""
        outer = set(self.type_names)
        try:
            yield
        finally:
            self.type_names = outer

    # Tokens

    @property
    def token(self) -> Token:
        """Return the next token."""
        return self.tokens[self.at]

    def peek(self, ahead: int = 1) -> Token:
        """Return the token `ahead` positions after the next one."""
        return self.tokens[min(self.at + ahead, len(self.tokens) - 1)]

    def last(self) -> Span:
        """Return the place of the last token read."""
        return self.tokens[max(self.at - 1, 0)].span

    def advance(self) -> Token:
        """Read a token."""
        token = self.tokens[self.at]
        self.at += token.kind != END
        return token

    def accept(self, text: str) -> bool:
        """Read a token if it has this text and is not a string; return whether it was read."""
        if self.tokens[self.at].text == text and self.tokens[self.at].kind != STRING:
            self.advance()
            return True
        return False

    def expect(self, text: str, what: str = "") -> Token:
        """Read a token that must have this text."""
        token = self.token
        if self.accept(text):
            return token
        if text == ")" and token.text == "=" and token.kind != STRING:
            raise error(token.span, "'=' assigns, and cannot stand inside an expression", "compare with ==")
        if self.at and self.peek(-1).text == "not" and self.peek(-1).kind == NAME:
            raise error(self.last(), "'not' is not an operator of P4", "write !")
        if token.kind == NAME and token.text in _WORDS_FOR_OPERATORS:
            operator = _WORDS_FOR_OPERATORS[token.text]
            raise error(token.span, f"'{token.text}' is not an operator of P4", f"write {operator}")
        last = self.last()
        if (
            text == ";"
            and self.at
            and (token.kind == END or token.span.line > last.end_line or token.text == "}")
        ):
            behind = Span(last.file, last.end_line, last.end_column, last.end_line, last.end_column + 1)
            raise error(behind, "missing ';'", f"write ; after {self.peek(-1).text}")
        found = f"'{token.text}'" if token.kind != END else token.text
        raise error(token.span, f"expected '{text}'{f' {what}' if what else ''}, found {found}")

    def identifier(self, what: str = "a name") -> Token:
        """Read a name that is not a reserved word."""
        token = self.token
        if token.kind == NAME and token.text not in RESERVED:
            return self.advance()
        if token.kind == NAME:
            raise error(
                token.span, f"expected {what}, but '{token.text}' is a reserved word", "choose another name"
            )
        found = f"'{token.text}'" if token.kind != END else token.text
        raise error(token.span, f"expected {what}, found {found}")

    # Errors

    def recover(self, failure: CompileError, begin: int) -> None:
        """Keep an error and skip the broken declaration or statement that begins at a token, if errors are kept.

        Raises:
            CompileError: If they are not kept, or nothing is left to skip.
        """
        if self.failures is None or self.tokens[begin].kind == END or self.tokens[begin].text == "}":
            raise failure
        self.failures.append(failure)
        self.at = self.end_of_broken(begin)

    def end_of_broken(self, begin: int) -> int:
        """Return where a broken part probably ends: after its ; or }, or at a line that is indented no more than it."""
        first, at = self.tokens[begin].span, max(self.at, begin + 1)
        texts = [token.text for token in self.tokens[begin:at] if token.kind != STRING]
        depth = texts.count("{") - texts.count("}")
        while self.tokens[at].kind != END:
            token, before = self.tokens[at], self.tokens[at - 1].span
            begins_line = token.span.line > before.end_line and token.span.file is first.file
            if token.text == "}":
                depth -= 1
                if depth <= 0:
                    return at if depth < 0 else at + 1
            elif begins_line and token.span.column <= first.column and token.text not in ("{", "else"):
                return at
            elif token.text == ";" and depth <= 0:
                return at + 1
            depth += token.text == "{"
            at += 1
        return at

    # Types

    def type(self) -> nodes.TypeNode:
        """Read a type."""
        start = self.token
        base = self._simple_type()
        while self.token.text == "[":
            self.advance()
            size = self.expression()
            self.expect("]")
            base = nodes.StackType(start.span.to(self.last()), base, size)
        return base

    def _simple_type(self) -> nodes.TypeNode:
        start = self.token
        if start.text in ("bit", "int", "varbit"):
            if self.peek().text == "(" and self.peek(2).text.isdecimal():
                wanted = f"{start.text}<{self.peek(2).text}>"
                raise error(
                    start.span.to(self.peek(2).span), "a width stands in angle brackets", f"write {wanted}"
                )
            self.advance()
            if not self.accept("<"):
                if start.text == "varbit":
                    raise error(start.span, "varbit needs its greatest width", "write varbit<320>")
                if start.text == "int":
                    return nodes.NamedType(start.span, "int")
                return nodes.BitsType(start.span, "bit", nodes.Integer(start.span, 1, None, False, 10))
            width: nodes.Expr
            if self.token.kind == NUMBER:
                width = self.primary()
            else:
                self.expect("(", "or a number of bits")
                width = self.expression()
                self.expect(")")
            self.expect(">")
            return nodes.BitsType(start.span.to(self.last()), start.text, width)
        if start.text == "tuple":
            self.advance()
            self.expect("<")
            elements = self.type_arguments()
            return nodes.TupleType(start.span.to(self.last()), elements)
        if start.text == "list" and self.peek().text == "<" and "list" not in self.type_names:
            self.advance()
            self.expect("<")
            element = self.type()
            self.expect(">")
            return nodes.ListType(start.span.to(self.last()), element)
        if start.text in _TYPE_WORDS:
            self.advance()
            return nodes.NamedType(start.span, start.text)
        if self.accept("_"):
            return nodes.NamedType(start.span, "_")
        rooted = self.accept(".")
        name = self.identifier("a type")
        arguments: tuple[nodes.TypeNode, ...] = ()
        if self.accept("<"):
            arguments = self.type_arguments()
        return nodes.NamedType(start.span.to(self.last()), name.text, arguments, rooted)

    def type_arguments(self) -> tuple[nodes.TypeNode, ...]:
        """Read type arguments after `<`, and `>`."""
        types = [self.type()]
        while self.accept(","):
            types.append(self.type())
        self.expect(">")
        return tuple(types)

    # Expressions

    def expression(self) -> nodes.Expr:
        """Read an expression."""
        start = self.token.span
        condition = self.binary(0)
        if not self.accept("?"):
            return condition
        chosen = self.expression()
        self.expect(":", "of the ternary operator")
        other = self.expression()
        return nodes.Ternary(start.to(self.last()), condition, chosen, other)

    def binary(self, lowest: int) -> nodes.Expr:
        """Read operands joined by operators of at least this precedence."""
        start = self.token.span
        left = self.unary()
        while True:
            op = self._operator()
            level = _LEVEL.get(op, -1)
            if level < lowest:
                return left
            self.at += 1 + (op == ">>")
            right = self.binary(level + 1)
            left = nodes.Binary(start.to(self.last()), op, left, right)

    def _operator(self) -> str:
        token = self.token
        if token.kind == STRING:
            return ""
        following = self.peek()
        return ">>" if token.text == ">" and following.text == ">" and following.glued else token.text

    def unary(self) -> nodes.Expr:
        """Read an operand with its unary operators."""
        token = self.token
        if token.text in ("-", "~", "!", "+") and token.kind != STRING:
            self.advance()
            operand = self.unary()
            return nodes.Unary(token.span.to(self.last()), token.text, operand)
        if token.text == "(" and self._cast_follows():
            self.advance()
            target = self.type()
            self.expect(")")
            operand = self.unary()
            return nodes.Cast(token.span.to(self.last()), target, operand)
        return self.postfix(self.primary())

    def _cast_follows(self) -> bool:
        name = self.peek()
        if name.kind != NAME:
            return False
        if name.text in ("bit", "int", "bool", "varbit", "tuple", "string"):
            return True
        if name.text == "list" and self.peek(2).text == "<":
            return self._is_list_cast()
        return name.text in self.type_names and self.peek(2).text in (")", "<", "[")

    def _is_list_cast(self) -> bool:
        at = self.at
        self.advance()
        try:
            self.type()
            return self.token.text == ")"
        except CompileError:
            return False
        finally:
            self.at = at

    def primary(self) -> nodes.Expr:
        """Read a literal, a name, or an expression in parentheses or braces."""
        token = self.token
        if token.kind == NUMBER:
            self._refuse_address()
            self.advance()
            number = parse_number(token)
            return nodes.Integer(token.span, number.value, number.width, number.signed, number.base)
        if token.kind == STRING:
            self.advance()
            return nodes.String(token.span, token.text[1:-1].replace('\\"', '"').replace("\\\\", "\\"))
        match token.text:
            case "true" | "false":
                self.advance()
                return nodes.Boolean(token.span, token.text == "true")
            case "(":
                self.advance()
                inner = self.expression()
                self.expect(")")
                return inner
            case "{":
                return self._braces()
            case "_" | "default":
                self.advance()
                return nodes.Anything(token.span)
            case ".":
                self.advance()
                name = self.identifier()
                return nodes.Name(token.span.to(name.span), name.text, rooted=True)
            case "error" | "match_kind":
                self.advance()
                return nodes.TypeExpr(token.span, nodes.NamedType(token.span, token.text))
        if token.kind == NAME and token.text in self.type_names:
            named = self._simple_type()
            return nodes.TypeExpr(named.span, named)
        if token.kind == NAME and token.text not in RESERVED:
            self.advance()
            return nodes.Name(token.span, token.text)
        found = f"'{token.text}'" if token.kind != END else token.text
        raise error(token.span, f"expected an expression, found {found}")

    def _refuse_address(self) -> None:
        """Raise an error if a MAC or IPv4 address follows, which is a number in P4."""
        for separator, count, base, kind in ((":", 6, 16, "MAC"), (".", 4, 10, "IPv4")):
            tokens = self.tokens[self.at : self.at + 2 * count - 1]
            parts, between = tokens[::2], tokens[1::2]
            if len(tokens) < 2 * count - 1 or any(t.text != separator for t in between):
                continue
            try:
                numbers = [int(part.text, base) for part in parts]
            except ValueError:
                continue
            if all(number <= 0xFF for number in numbers):
                hint = f"write 0x{bytes(numbers).hex()}"
                message = (
                    f"an {kind} address is not a literal"
                    if kind == "IPv4"
                    else "a MAC address is not a literal"
                )
                raise error(tokens[0].span.to(tokens[-1].span), f"{message} of P4", hint)

    def _braces(self) -> nodes.Expr:
        start = self.expect("{").span
        if self.accept("#"):
            self.expect("}")
            return nodes.Invalid(start.to(self.last()))
        fields: list[tuple[str, nodes.Expr]] = []
        elements: list[nodes.Expr] = []
        named = self.token.kind == NAME and self.peek().text == "="
        rest = False
        while not (rest or self.accept("}")):
            rest = self.accept("...")
            if named and not rest:
                name = self.identifier("a field")
                self.expect("=")
                fields.append((name.text, self.expression()))
            elif not rest:
                elements.append(self.expression())
            if rest or not self.accept(","):
                self.expect("}")
                break
        span = start.to(self.last())
        return nodes.Record(span, tuple(fields), rest) if named else nodes.Tuple(span, tuple(elements), rest)

    def postfix(self, base: nodes.Expr) -> nodes.Expr:
        """Read what follows an operand: members, indices, slices, calls."""
        start = base.span
        while True:
            token = self.token
            if token.kind == STRING:
                return base
            match token.text:
                case ".":
                    self.advance()
                    name = self.advance()
                    if name.kind != NAME and base.span.fragment().isdecimal():
                        raise error(
                            base.span.to(name.span),
                            "P4 has no fractions",
                            "write a whole number, in smaller units",
                        )
                    if name.kind != NAME:
                        raise error(
                            name.span, f"expected the name of a member after '.', found '{name.text}'"
                        )
                    base = nodes.Member(start.to(name.span), base, name.text, name.span)
                case "[":
                    self.advance()
                    first = self.expression()
                    if self.accept(":"):
                        low = self.expression()
                        self.expect("]")
                        base = nodes.Slice(start.to(self.last()), base, first, low)
                    elif self.accept("+:"):
                        width = self.expression()
                        self.expect("]")
                        base = nodes.PlusSlice(start.to(self.last()), base, first, width)
                    else:
                        self.expect("]")
                        base = nodes.Index(start.to(self.last()), base, first)
                case "(":
                    base = nodes.Call(start, base, (), self.arguments())
                    base = nodes.Call(start.to(self.last()), base.function, (), base.arguments)
                case "<":
                    types = self.call_type_arguments()
                    if types is None:
                        return base
                    arguments = self.arguments()
                    base = nodes.Call(start.to(self.last()), base, types, arguments)
                case _:
                    return base

    def call_type_arguments(self) -> tuple[nodes.TypeNode, ...] | None:
        """Read the type arguments of a call, or return None if `<` is a comparison here."""
        at = self.at
        self.advance()
        try:
            types = self.type_arguments()
            if self.token.text == "(":
                return types
        except CompileError:
            pass
        self.at = at
        return None

    def arguments(self) -> tuple[nodes.Argument, ...]:
        """Read the arguments of a call with their parentheses."""
        self.expect("(")
        arguments: list[nodes.Argument] = []
        while not self.accept(")"):
            start = self.token
            name = None
            if start.kind == NAME and self.peek().text == "=":
                name = self.identifier("a parameter").text
                self.expect("=")
            value: nodes.Expr | None
            if self.token.text == "_":
                self.advance()
                value = None
            else:
                value = self.expression()
            arguments.append(nodes.Argument(start.span.to(self.last()), name, value))
            if not self.accept(","):
                self.expect(")", "or ','")
                break
        return tuple(arguments)

    def keyset(self) -> nodes.Expr:
        """Read one element of a key set: an expression, a mask, a range, or `_`."""
        start = self.token.span
        left = self.expression()
        for op in ("&&&", ".."):
            if self.accept(op):
                right = self.expression()
                return nodes.Binary(start.to(self.last()), op, left, right)
        return left

    def keysets(self) -> tuple[nodes.Expr, ...]:
        """Read the keys of a select case or of a table entry: one, or several in parentheses."""
        if self.token.text == "(":
            at = self.at
            self.advance()
            keys = [self.keyset()]
            while self.accept(","):
                keys.append(self.keyset())
            self.expect(")")
            if self.token.text == ":" or (len(keys) > 1):
                return tuple(keys)
            self.at = at  # an expression that begins with a parenthesis
        return (self.keyset(),)

    # Annotations

    def annotations(self) -> nodes.Annotations:
        """Read the annotations before a declaration."""
        result = []
        while self.token.text == "@":
            start = self.advance().span
            name = self.advance().text
            arguments: tuple[nodes.Expr, ...] = ()
            text, structured = "", False
            if name == "pragma":  # `@pragma name values`: it ends with the line
                name = self.identifier("the pragma's name").text
                first = self.at
                while self.token.kind != END and self._on_line(start):
                    self.advance()
                inner = self.tokens[first : self.at]
                text = _annotation_text(inner)
                arguments = self.annotation_arguments(inner)
            elif self.token.text in ("(", "["):
                structured = self.token.text == "["
                first = self.at + 1
                self._skip_balanced()
                inner = self.tokens[first : self.at - 1]
                text = _annotation_text(inner)
                arguments = self.annotation_arguments(inner)
            result.append(nodes.Annotation(start.to(self.last()), name, arguments, text, structured))
        return tuple(result)

    def _on_line(self, start: Span) -> bool:
        """Return whether the next token stands on the line where `start` begins."""
        span = self.token.span
        return span.file is start.file and span.line == start.line

    def _skip_balanced(self) -> None:
        opened = self.token
        depth = 0
        while True:
            token = self.advance()
            if token.kind == END:
                raise error(opened.span, f"this '{opened.text}' is never closed")
            if token.kind != STRING:
                depth += (token.text in ("(", "[", "{")) - (token.text in (")", "]", "}"))
            if depth == 0:
                return

    def annotation_arguments(self, inner: list[Token]) -> tuple[nodes.Expr, ...]:
        """Return the arguments as expressions (`a = 1, b = 2` as a record); empty if they are not expressions."""
        if not inner:
            return ()
        reader = ExpressionParser(inner, inner[-1].span)
        reader.type_names = self.type_names
        pairs = inner[0].kind == NAME and len(inner) > 1 and inner[1].text == "="
        result: list[nodes.Expr] = []
        fields: list[tuple[str, nodes.Expr]] = []
        try:
            while not (result or fields) or reader.accept(","):
                if pairs:
                    name = reader.advance().text
                    reader.expect("=")
                    fields.append((name, reader.expression()))
                else:
                    result.append(reader.annotation_argument())
        except CompileError:
            return ()
        if reader.token.kind != END:
            return ()
        return (nodes.Record(inner[0].span, tuple(fields)),) if pairs else tuple(result)

    def annotation_argument(self) -> nodes.Expr:
        """Read an expression, or a type as in @p4runtime_translation("...", bit<32>)."""
        if self.token.text in _TYPE_WORDS:
            named = self.type()
            return nodes.TypeExpr(named.span, named)
        return self.expression()


def _annotation_text(tokens: list[Token]) -> str:
    """Return the text of an annotation's arguments as p4c writes it, which has no token `::`."""
    return " ".join(": :" if token.text == "::" else token.text for token in tokens)
