"""Syntax of declarations: tokens -> the syntax tree."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches

from fanin.p4compiler import nodes
from fanin.p4compiler.parse.braces import unclosed_brace
from fanin.p4compiler.parse.expressions import RESERVED
from fanin.p4compiler.parse.lex import END, NAME, Token
from fanin.p4compiler.parse.statements import StatementParser
from fanin.p4compiler.source import CompileError, SourceFile, Span, error

_STRUCTURED = ("key", "actions", "entries")  # the properties of a table with braces
# All properties that a table may have.
PROPERTIES = (
    *_STRUCTURED, "default_action", "size", "counters", "meters", "implementation", "support_timeout",
    "largest_priority_wins", "priority_delta",
)  # fmt: skip


_FORMER_PROPERTIES = {"reads": "key"}  # of P4_14


@dataclass(slots=True)
class KeptDeclarations:
    """Declarations of the last time, which are used again up to the first token that is another one.

    Attributes:
        tokens: The tokens of the last time.
        declared: For each declaration before the first error the number of tokens up to its end, and the names of types
            that are known after it.
    """

    tokens: list[Token] = field(default_factory=list)
    declared: list[tuple[int, nodes.Declaration, frozenset[str]]] = field(default_factory=list)

    def reusable(self, tokens: list[Token]) -> list[tuple[int, nodes.Declaration, frozenset[str]]]:
        """Return the declarations whose tokens, and the one after, are the same objects."""
        pairs = enumerate(zip(tokens, self.tokens, strict=False))
        same = next((n for n, (a, b) in pairs if a is not b), min(len(tokens), len(self.tokens)))
        return [each for each in self.declared if each[0] < same]


def parse(
    tokens: list[Token],
    type_names: Iterable[str] = (),
    failures: list[CompileError] | None = None,
    kept: KeptDeclarations | None = None,
) -> nodes.Program:
    """Parse a preprocessed program into its syntax tree.

    Args:
        tokens: The program.
        type_names: The names of types that are declared elsewhere.
        failures: Receives the syntax errors. The tree then lacks the broken declarations and statements. None: the
            first error is raised.
        kept: What the last time has left, which is brought up to date.

    Raises:
        CompileError: At the first syntax error, without `failures`.
    """
    end = tokens[-1].span if tokens else Span(SourceFile("", ()), 1, 0, 1, 0)
    end = Span(end.file, end.end_line, end.end_column, end.end_line, end.end_column + 1)
    parser = _Parser(tokens, end)
    parser.type_names |= set(type_names)
    parser.failures = failures
    declared = kept.reusable(tokens) if kept is not None else []
    declarations = [declaration for _, declaration, _ in declared]
    if declared:
        parser.at, parser.type_names = declared[-1][0], set(declared[-1][2])
    while parser.token.kind != END:
        begin = parser.at
        try:
            if not parser.accept(";"):
                declarations.append(parser.declaration())
                if kept is not None and not failures:
                    declared.append((parser.at, declarations[-1], frozenset(parser.type_names)))
        except CompileError as failure:
            brace = unclosed_brace(tokens, parser.at)
            if brace is not None:
                [wrong] = failure.diagnostics
                follows = (
                    f"without that, what follows is wrong from line {wrong.span.line} on: {wrong.message}"
                )
                failure = error(brace.span, "this '{' is never closed", f"end it with }}; {follows}")
            if failures is None:
                raise failure from None
            failures.append(failure)
            parser.skip_declaration(begin)
    if kept is not None:
        kept.tokens, kept.declared = tokens, declared
    return nodes.Program(tuple(declarations))


class _Parser(StatementParser):
    # Declarations of the top level

    def skip_declaration(self, begin: int) -> None:
        """Skip a broken declaration; the type that it declares is one nevertheless."""
        kind, name = self.tokens[begin], self.tokens[min(begin + 1, len(self.tokens) - 1)]
        if kind.text in ("header", "struct", "header_union", "enum", "extern", "parser", "control"):
            self.type_names.add(name.text)
        self.at = self.end_of_broken(begin)

    def declaration(self) -> nodes.Declaration:
        annotations = self.annotations()
        start = self.token
        match start.text:
            case "const":
                return self.constant(annotations)
            case "typedef":
                return self.typedef(annotations)
            case "header" | "struct" | "header_union":
                return self.composite(annotations)
            case "enum":
                return self.enum(annotations)
            case "error" | "match_kind" if self.peek().text == "{":
                return self.names(annotations)
            case "extern":
                return self.extern(annotations)
            case "parser" | "control":
                with self.scope():
                    block = self.parser(annotations) if start.text == "parser" else self.control(annotations)
                self.type_names.add(block.name)
                return block
            case "package":
                with self.scope():
                    head = self.callable_head(annotations, "package")
                self.type_names.add(head.name)
                self.expect(";")
                return head
            case "action":
                return self.action(annotations)
            case "type" if self.peek().kind == NAME:
                return self.typedef(annotations)
            case "abstract":
                raise error(start.span, "abstract methods are not supported")
        if start.text == "}":
            raise error(
                start.span, "this '}' closes nothing", "a '{' above it is missing, or a '}' is one too many"
            )
        if start.kind != NAME and start.text != ".":
            found = f"'{start.text}'" if start.kind != END else start.text
            raise error(start.span, f"expected a declaration, found {found}")
        return self.instance_or_function(annotations)

    def instance_or_function(self, annotations: nodes.Annotations) -> nodes.Instance | nodes.Function:
        start = self.token.span
        of = self.type()
        if self.token.text == "(":
            return self.instance(annotations, start, of)
        name = self.declared()
        with self.scope():
            head = self.method_head(start, name, annotations, of)
            self.type_names -= {p.name for p in head.parameters}
            body = self.block()
        return nodes.Function(start.to(self.last()), name.text, name.span, annotations, head, body)

    def typedef(self, annotations: nodes.Annotations) -> nodes.Typedef:
        keyword = self.advance()
        declared = self.type()
        name = self.identifier("the type's name")
        self.expect(";")
        self.type_names.add(name.text)
        span = keyword.span.to(self.last())
        return nodes.Typedef(span, name.text, name.span, annotations, declared, keyword.text == "type")

    def composite(self, annotations: nodes.Annotations) -> nodes.Composite:
        keyword = self.advance()
        name = self.identifier(f"the {keyword.text}'s name")
        self.type_names.add(name.text)
        generic = self.type_parameters()
        self.expect("{")
        fields = []
        with self.scope():
            self.type_names |= set(generic)
            while not self.accept("}"):
                begin = self.at
                try:
                    fields.append(self.field())
                except CompileError as failure:
                    self.recover(failure, begin)
        span = keyword.span.to(self.last())
        return nodes.Composite(span, name.text, name.span, annotations, keyword.text, generic, tuple(fields))

    def field(self) -> nodes.Field:
        annotations = self.annotations()
        start = self.token.span
        declared = self.type()
        name = self.identifier("a field's name")
        if self.token.text == "[":
            written = f"{declared.span.fragment()}[{self.peek().text}] {name.text};"
            hint = (
                f"write {written}"
                if isinstance(declared, nodes.NamedType)
                else "only headers can be in a stack"
            )
            raise error(self.token.span, "the size of a stack stands after its type", hint)
        self.expect(";")
        return nodes.Field(start.to(self.last()), name.text, name.span, annotations, declared)

    def enum(self, annotations: nodes.Annotations) -> nodes.Enum:
        start = self.expect("enum").span
        underlying = self.type() if self.token.text in ("bit", "int") or self.peek().kind == NAME else None
        name = self.identifier("the enum's name")
        self.type_names.add(name.text)
        self.expect("{")
        members: list[tuple[str, nodes.Expr | None, Span]] = []
        while not self.accept("}"):
            member = self.identifier("an enum member")
            value = None
            if underlying is not None:
                self.expect("=", "and the member's value (every member of a serializable enum has one)")
                value = self.expression()
            members.append((member.text, value, member.span))
            if not self.accept(","):
                self.expect("}")
                break
        span = start.to(self.last())
        return nodes.Enum(span, name.text, name.span, annotations, underlying, tuple(members))

    def names(self, annotations: nodes.Annotations) -> nodes.Names:
        keyword = self.advance()
        self.expect("{")
        members = []
        while not self.accept("}"):
            member = self.identifier()
            members.append((member.text, member.span))
            if not self.accept(","):
                self.expect("}")
                break
        span = keyword.span.to(self.last())
        return nodes.Names(span, keyword.text, keyword.span, annotations, tuple(members))

    def type_parameters(self) -> tuple[str, ...]:
        names: list[str] = []
        if self.accept("<"):
            while not names or self.accept(","):
                name = self.identifier("a type parameter")
                if name.text in names:
                    raise error(name.span, f"type parameter '{name.text}' is declared twice")
                names.append(name.text)
            self.expect(">")
        return tuple(names)

    def parameters(self) -> tuple[nodes.Parameter, ...]:
        self.expect("(")
        parameters = []
        while not self.accept(")"):
            annotations = self.annotations()
            start = self.token
            direction = self.advance().text if start.text in ("in", "out", "inout") else ""
            bare = self.token
            declared = self.type()
            if (
                bare.kind == NAME
                and self.token.text in (",", ")")
                and bare.text not in self.type_names | RESERVED
            ):
                message = f"parameter '{bare.text}' has no type"
                raise error(bare.span, message, f"write its type before its name: bit<32> {bare.text}")
            name = self.declared("the parameter's name")
            default = self.expression() if self.accept("=") else None
            span = start.span.to(self.last())
            parameters.append(
                nodes.Parameter(span, name.text, name.span, declared, direction, default, annotations)
            )
            if not self.accept(","):
                self.expect(")", "or ','")
                break
        return tuple(parameters)

    def method_head(
        self, start: Span, name: Token, annotations: nodes.Annotations, result: nodes.TypeNode | None
    ) -> nodes.Method:
        with self.scope():
            generic = self.type_parameters()
            self.type_names |= set(generic)
            parameters = self.parameters()
        span = start.to(self.last())
        return nodes.Method(span, name.text, name.span, annotations, result, generic, parameters)

    def extern(self, annotations: nodes.Annotations) -> nodes.Declaration:
        start = self.expect("extern").span
        if self.peek().text in ("{", "<") and self.token.kind == NAME and self.token.text not in RESERVED:
            return self.extern_object(start, annotations)
        with self.scope():
            self.type_names |= self.generic_result()
            result = self.type()
            name = self.identifier("the function's name")
            head = self.method_head(start, name, annotations, result)
        self.expect(";")
        return head

    def generic_result(self) -> set[str]:
        """Return the type parameters of `T f<T>(...)`, which follow their first use; else an empty set."""
        if self.token.kind == NAME and self.peek().kind == NAME and self.peek(2).text == "<":
            names = set()
            at = 3
            while self.peek(at).kind == NAME:
                names.add(self.peek(at).text)
                at += 2
            return names
        return set()

    def extern_object(self, start: Span, annotations: nodes.Annotations) -> nodes.Extern:
        name = self.identifier("the extern's name")
        self.type_names.add(name.text)
        generic = self.type_parameters()
        methods = []
        with self.scope():
            self.type_names |= set(generic)
            self.expect("{")
            while not self.accept("}"):
                of_method = self.annotations()
                first = self.token
                if first.text == "abstract":
                    raise error(first.span, "abstract methods are not supported")
                if first.text == name.text and self.peek().text == "(":
                    method = self.method_head(first.span, self.advance(), of_method, None)
                else:
                    self.type_names |= self.generic_result()
                    result = self.type()
                    method = self.method_head(
                        first.span, self.identifier("the method's name"), of_method, result
                    )
                self.expect(";")
                methods.append(method)
        span = start.to(self.last())
        return nodes.Extern(span, name.text, name.span, annotations, generic, tuple(methods))

    # Parsers, controls, packages

    def callable_head(self, annotations: nodes.Annotations, kind: str) -> nodes.Callable:
        start = self.expect(kind).span
        name = self.identifier(f"the {kind}'s name")
        self.type_names.add(name.text)
        generic = self.type_parameters()
        self.type_names |= set(generic)
        parameters = self.parameters()
        constructor = self.parameters() if self.token.text == "(" else None
        span = start.to(self.last())
        return nodes.Callable(span, name.text, name.span, annotations, kind, generic, parameters, constructor)

    def parser(self, annotations: nodes.Annotations) -> nodes.Declaration:
        head = self.callable_head(annotations, "parser")
        if self.accept(";"):
            return head
        if head.type_parameters:
            raise error(head.name_span, "generic parsers are not supported")
        self.expect("{")
        local: list[nodes.Node] = []
        states: list[nodes.State] = []
        while not self.accept("}"):
            begin = self.at
            try:
                of_local = self.annotations()
                if self.token.text == "state":
                    states.append(self.state(of_local))
                else:
                    local.append(self.local(of_local))
            except CompileError as failure:
                self.recover(failure, begin)
        span = head.span.to(self.last())
        return nodes.Parser(span, head.name, head.name_span, annotations, head, tuple(local), tuple(states))

    def state(self, annotations: nodes.Annotations) -> nodes.State:
        start = self.expect("state").span
        name = self.identifier("the state's name")
        self.expect("{")
        statements: list[nodes.Statement] = []
        transition: nodes.Select | nodes.Name | None = None
        with self.scope():
            while not self.accept("}"):
                if self.accept("transition"):
                    transition = self.transition()
                    if self.token.text != "}":
                        hint = "move it before the transition"
                        raise error(
                            self.token.span, "nothing follows a transition: a transition ends its state", hint
                        )
                    self.expect("}")
                    break
                begin = self.at
                try:
                    statements += self.statement()
                except CompileError as failure:
                    self.recover(failure, begin)
        span = start.to(self.last())
        return nodes.State(span, name.text, name.span, annotations, tuple(statements), transition)

    def transition(self) -> nodes.Select | nodes.Name:
        start = self.token.span
        if not self.accept("select"):
            name = self.identifier("a state")
            self.expect(";")
            return nodes.Name(name.span, name.text)
        self.expect("(")
        subjects = [] if self.token.text == ")" else [self.expression()]
        while self.accept(","):
            subjects.append(self.expression())
        self.expect(")")
        self.expect("{")
        cases = []
        while not self.accept("}"):
            first = self.token.span
            self.refuse_case("state;")
            keys = self.keysets()
            self.expect(":")
            state = self.identifier("a state")
            self.expect(";")
            cases.append(nodes.SelectCase(first.to(self.last()), keys, state.text, state.span))
        return nodes.Select(start.to(self.last()), tuple(subjects), tuple(cases))

    def control(self, annotations: nodes.Annotations) -> nodes.Declaration:
        head = self.callable_head(annotations, "control")
        if self.accept(";"):
            return head
        if head.type_parameters:
            raise error(head.name_span, "generic controls are not supported")
        self.expect("{")
        local: list[nodes.Node] = []
        while self.token.text != "apply":
            begin = self.at
            try:
                local.append(self.local(self.annotations()))
            except CompileError as failure:
                self.recover(failure, begin)
        self.expect("apply")
        body = self.block()
        self.expect("}", "(apply is the last thing in a control)")
        span = head.span.to(self.last())
        return nodes.Control(span, head.name, head.name_span, annotations, head, tuple(local), body)

    def local(self, annotations: nodes.Annotations) -> nodes.Node:
        """Read a declaration inside a parser or control."""
        match self.token.text:
            case "const":
                return self.constant(annotations)
            case "action":
                return self.action(annotations)
            case "table":
                return self.table(annotations)
            case "value_set":
                return self.value_set(annotations)
            case "}":
                hint = "add apply { }, or remove a '}' above that is one too many"
                raise error(self.token.span, "expected an apply block before the end of the control", hint)
        if self._statement_follows():
            hint = "move it into the apply block, an action or a state"
            raise error(self.token.span, "a statement cannot stand between declarations", hint)
        return self.typed_declaration(annotations)

    def _statement_follows(self) -> bool:
        token, following = self.token, self.peek().text
        if token.text in ("if", "switch", "return", "exit", "for", "transition"):
            return True
        if token.kind != NAME or token.text in RESERVED or token.text in self.type_names:
            return False
        if following != "(":
            return following in (".", "=", "[")
        at = self.at
        self.advance()
        try:
            self.arguments()
            return self.token.text == ";"
        except CompileError:
            return False
        finally:
            self.at = at

    def value_set(self, annotations: nodes.Annotations) -> nodes.ValueSet:
        start = self.expect("value_set").span
        self.expect("<")
        element = self.type()
        self.expect(">")
        self.expect("(")
        size = self.expression()
        self.expect(")")
        name = self.declared("the value set's name")
        self.expect(";")
        return nodes.ValueSet(start.to(self.last()), name.text, name.span, annotations, element, size)

    def action(self, annotations: nodes.Annotations) -> nodes.Action:
        start = self.expect("action").span
        name = self.declared("the action's name")
        with self.scope():
            parameters = self.parameters()
            body = self.block()
        return nodes.Action(start.to(self.last()), name.text, name.span, annotations, parameters, body)

    # Tables

    def table(self, annotations: nodes.Annotations) -> nodes.Table:
        start = self.expect("table").span
        name = self.declared("the table's name")
        self.expect("{")
        key: tuple[nodes.KeyElement, ...] = ()
        actions: tuple[nodes.ActionRef, ...] | None = None
        default: nodes.ActionRef | None = None
        default_constant = False
        entries: tuple[nodes.Entry, ...] | None = None
        entries_constant = True
        properties: list[nodes.Property] = []
        given: dict[str, Span] = {}
        while not self.accept("}"):
            of_property = self.annotations()
            first = self.token.span
            constant = self.accept("const")
            word = self.advance()
            if word.text not in PROPERTIES:
                meant = get_close_matches(_FORMER_PROPERTIES.get(word.text, word.text), PROPERTIES, n=1)
                if meant and meant[0] in _STRUCTURED:
                    hint = f"write {meant[0]} = {{ ... }}"
                    raise error(word.span, f"a table has no property '{word.text}'", hint)
            if word.text in given:
                hint = "keep one of them"
                if word.text in _STRUCTURED:
                    hint = f"write all of it in one {word.text} = {{ ... }}"
                message = f"table '{name.text}' has '{word.text}' twice"
                raise error(word.span, message, hint, other=given[word.text])
            given[word.text] = word.span
            if self.token.text == "{" and word.text in _STRUCTURED:
                raise error(self.token.span, "expected '=', found '{'", f"write {word.text} = {{ ... }}")
            self.expect("=")
            match word.text:
                case "key":
                    key = self.key()
                case "actions":
                    actions = self.actions()
                case "default_action":
                    default, default_constant = self.action_ref(), constant
                    self.expect(";")
                case "entries":
                    entries, entries_constant = self.entries(), constant
                case _:
                    value = self.expression()
                    self.expect(";")
                    span = first.to(self.last())
                    properties.append(nodes.Property(span, word.text, constant, value, of_property))
        if actions is None:
            raise error(name.span, f"table '{name.text}' has no actions", "add actions = { ... }")
        return nodes.Table(
            start.to(self.last()), name.text, name.span, annotations,
            key, actions, default, default_constant, entries, entries_constant, tuple(properties),
        )  # fmt: skip

    def refuse_comma(self, what: str) -> None:
        if self.token.text == ",":
            raise error(self.token.span, "expected ';', found ','", f"end each {what} with ;")

    def key(self) -> tuple[nodes.KeyElement, ...]:
        self.expect("{")
        elements = []
        while not self.accept("}"):
            start = self.token.span
            expression = self.expression()
            if self.token.text in (";", ","):
                text = start.to(self.last()).fragment()
                hint = f"write {text}: exact; (or another kind, such as lpm or ternary)"
                raise error(self.token.span, "this key has no match kind", hint)
            self.expect(":", "and how to match")
            kind = self.identifier("a match kind")
            annotations = self.annotations()
            self.refuse_comma("key")
            self.expect(";")
            span = start.to(self.last())
            elements.append(nodes.KeyElement(span, expression, kind.text, kind.span, annotations))
        self.accept(";")
        return tuple(elements)

    def actions(self) -> tuple[nodes.ActionRef, ...]:
        self.expect("{")
        refs = []
        while not self.accept("}"):
            refs.append(self.action_ref())
            self.refuse_comma("action")
            self.expect(";")
        self.accept(";")
        return tuple(refs)

    def action_ref(self) -> nodes.ActionRef:
        annotations = self.annotations()
        start = self.token.span
        rooted = self.accept(".")
        name = self.identifier("an action")
        arguments = self.arguments() if self.token.text == "(" else None
        return nodes.ActionRef(start.to(self.last()), name.text, rooted, arguments, annotations)

    def entries(self) -> tuple[nodes.Entry, ...]:
        self.expect("{")
        entries = []
        while not self.accept("}"):
            before = self.annotations()
            start = self.token.span
            is_const = self.accept("const")
            priority: nodes.Expr | None = None
            if self.token.text == "priority" and self.peek().text == "=":
                self.advance()
                self.advance()
                priority = self.expression()
                self.expect(":", "and the entry's keys")
            first = self.token.span
            keys = self.keysets()
            if self.token.text != ":":
                hint = f"write {first.to(self.last()).fragment()}: action();"
                raise error(self.token.span, "expected ':' between the entry's keys and its action", hint)
            self.advance()
            action = self.action_ref()
            after = self.annotations()
            self.refuse_comma("entry")
            if self.token.text in (".", "="):
                hint = "write one of the table's actions here, and the statement in that action"
                raise error(self.token.span, "an entry calls an action of its table", hint)
            self.expect(";")
            span = start.to(self.last())
            entries.append(nodes.Entry(span, keys, action, before + after, priority, is_const))
        self.accept(";")
        return tuple(entries)
