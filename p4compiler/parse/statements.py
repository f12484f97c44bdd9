"""Syntax of statements, and of the declarations among them (P4_16 specification, appendix "P4 grammar")."""

from __future__ import annotations

from dataclasses import replace

from fanin.p4compiler import nodes
from fanin.p4compiler.parse.expressions import RESERVED, ExpressionParser
from fanin.p4compiler.parse.lex import NAME, STRING, Token
from fanin.p4compiler.source import CompileError, Span, error, suggestion
from fanin.p4compiler.types import counterpart

_ASSIGNMENTS = frozenset(f"{op}=" for op in ("", "+", "-", "*", "/", "%", "&", "|", "^", "<<", "|+|", "|-|"))


class StatementParser(ExpressionParser):
    """Parser of statements. Syntax errors are raised as CompileError."""

    # Declarations

    def typed_declaration(self, annotations: nodes.Annotations) -> nodes.Instance | nodes.Variable:
        """Read a declaration that begins with a type: an instance or a variable."""
        start = self.token.span
        of = self.type()
        if self.token.text == "(":
            return self.instance(annotations, start, of)
        made = self.variable(annotations, start, of)
        if self.token.text == "(":
            self._refuse_constructor_after_name(made)
        self.expect(";")
        return replace(made, span=start.to(self.last()))

    def _refuse_constructor_after_name(self, made: nodes.Variable) -> None:
        opening = self.token.span
        self.arguments()
        if self.token.text == ";":
            arguments = opening.to(self.last()).fragment()
            hint = f"write {made.type.span.fragment()}{arguments} {made.name};"
            raise error(opening, "the arguments of an instance come before its name", hint)
        raise error(opening, "a function cannot be declared here", "move it before the parser or control")

    def variable(self, annotations: nodes.Annotations, start: Span, of: nodes.TypeNode) -> nodes.Variable:
        """Read the rest of a variable's declaration, without its semicolon."""
        name = self.declared()
        initial = self.expression() if self.accept("=") else None
        return nodes.Variable(start.to(self.last()), name.text, name.span, annotations, of, initial)

    def instance(self, annotations: nodes.Annotations, start: Span, of: nodes.TypeNode) -> nodes.Instance:
        """Read the rest of an instance's declaration, starting with its arguments."""
        arguments = self.arguments()
        if self.token.text == ";" and isinstance(of, nodes.NamedType):
            hint = f"write ) {'main' if of.name == 'V1Switch' else 'name'};"
            raise error(self.token.span, f"this instance of {of.name} has no name", hint)
        name = self.declared("the instance's name")
        if self.token.text == "=":
            raise error(self.token.span, "instances with abstract methods are not supported")
        self.expect(";")
        return nodes.Instance(start.to(self.last()), name.text, name.span, annotations, of, arguments)

    def constant(self, annotations: nodes.Annotations) -> nodes.Constant:
        """Read a constant's declaration."""
        start = self.expect("const").span
        declared = self.type()
        name = self.declared("the constant's name")
        self.expect("=", "and the constant's value")
        value = self.expression()
        self.expect(";")
        return nodes.Constant(start.to(self.last()), name.text, name.span, annotations, declared, value)

    def declared(self, what: str = "a name") -> Token:
        """Read a name that is being declared, which hides a type of the same name."""
        name = self.identifier(what)
        self.type_names.discard(name.text)
        return name

    # Statements

    def block(self) -> nodes.Block:
        """Read statements in braces, after annotations that have no effect."""
        self.annotations()
        start = self.expect("{").span
        statements: list[nodes.Statement] = []
        with self.scope():
            while not self.accept("}"):
                begin = self.at
                try:
                    statements += self.statement()
                except CompileError as failure:
                    self.recover(failure, begin)
        return nodes.Block(start.to(self.last()), tuple(statements))

    def one(self) -> nodes.Statement:
        """Read exactly one statement, such as a branch."""
        start = self.token.span
        statements = self.statement()
        return statements[0] if statements else nodes.Block(start, ())

    def statement(self) -> list[nodes.Statement]:
        """Read a statement as a list, which is empty for `;`."""
        annotations = self.annotations()
        start = self.token
        match start.text:
            case ";":
                self.advance()
                return []
            case "{":
                return [self.block()]
            case "if":
                return [self.if_statement()]
            case "switch":
                return [self.switch()]
            case "return":
                self.advance()
                value = None if self.token.text == ";" else self.expression()
                self.expect(";")
                return [nodes.Return(start.span.to(self.last()), value)]
            case "exit":
                self.advance()
                self.expect(";")
                return [nodes.Exit(start.span.to(self.last()))]
            case "const":
                return [self.constant(annotations)]
            case "for" if self.peek().text == "(":
                return [self.for_statement()]
            case "while" if self.peek().text == "(":
                raise error(start.span, "P4 has no while", "write for (; condition; ) { }")
            case "elif" | "elsif" | "elseif" if self.peek().text == "(":
                raise error(start.span, f"P4 has no {start.text}", "write else if (condition) { }")
            case "else":
                hint = "an else follows the '}' or the one statement of its if directly"
                raise error(start.span, "this else belongs to no if", hint)
            case "transition":
                hint = "end the state with transition select(expression) { value: state; default: state; }"
                raise error(start.span, "a transition cannot stand inside another statement", hint)
            case "select":
                hint = "write transition select(...) { ... }"
                raise error(start.span, "select is a part of a transition, not a statement", hint)
            case "break" | "continue" if self.peek().text == ";":
                self.advance()
                self.advance()
                kind = nodes.Break if start.text == "break" else nodes.Continue
                return [kind(start.span.to(self.last()))]
        if self.declaration_follows():
            return [self.typed_declaration(annotations)]
        simple = self.simple_statement()
        self.expect(";")
        return [simple]

    def simple_statement(self) -> nodes.Assignment | nodes.CallStatement:
        """Read an assignment or a call, without its semicolon."""
        start = self.token.span
        target = self.postfix(self.primary())
        step = self.token
        if (step.text in "+-" and self.peek().text == step.text and self.peek().glued) or step.text == "++":
            text = target.span.fragment()
            raise error(
                step.span,
                f"'{step.text[0] * 2}' does not change a value",
                f"write {text} = {text} {step.text[0]} 1;",
            )
        op = self.assignment_operator()
        if op is not None:
            value = self.expression()
            return nodes.Assignment(start.to(value.span), target, value, op)
        if not isinstance(target, nodes.Call):
            hint = "an assignment or a call was expected"
            if self.token.text == "==":
                hint = "'==' compares; to assign, write ="
            elif isinstance(target, nodes.Name | nodes.Member) and self.token.text == ";":
                hint = f"to call it, write {target.span.fragment()}();"
            raise error(target.span, "this is not a statement", hint)
        return nodes.CallStatement(target.span, target)

    def assignment_operator(self) -> str | None:
        """Read `=` and return "", or read `op=` and return the operator. Return None if neither follows."""
        token, following = self.token, self.peek()
        if token.text == ">" and following.text == ">=" and following.glued:
            self.advance()
            self.advance()
            return ">>"
        if token.text not in _ASSIGNMENTS or token.kind == STRING:
            return None
        self.advance()
        return token.text[:-1]

    def for_statement(self) -> nodes.For | nodes.ForIn:
        """Read a loop (specification, 12.9)."""
        start = self.expect("for").span
        self.expect("(")
        with self.scope():
            first: list[nodes.Statement] = []
            if self.token.text != ";":
                annotations = self.annotations()
                place = self.token.span
                if self.declaration_follows():
                    of = self.type()
                    if self.peek().text == "in":
                        return self.for_in(start, annotations, of)
                    first.append(self.variable(annotations, place, of))
                else:
                    first.append(self.simple_statement())
                while self.accept(","):
                    place = self.token.span
                    more = self.declaration_follows()
                    first.append(self.variable((), place, self.type()) if more else self.simple_statement())
            self.expect(";")
            condition = self.expression()
            self.expect(";")
            update: list[nodes.Statement] = []
            while not self.accept(")"):
                update.append(self.simple_statement())
                if not self.accept(","):
                    self.expect(")", "or ','")
                    break
            body = self.one()
        return nodes.For(start.to(self.last()), tuple(first), condition, tuple(update), body)

    def for_in(self, start: Span, annotations: nodes.Annotations, of: nodes.TypeNode) -> nodes.ForIn:
        """Read the rest of a loop over a range or a header stack, starting with the name of its variable."""
        name = self.declared()
        variable = nodes.Variable(of.span.to(name.span), name.text, name.span, annotations, of, None)
        self.expect("in")
        values = self.keyset()
        self.expect(")")
        return nodes.ForIn(start.to(self.last()), variable, values, self.one())

    def declaration_follows(self) -> bool:
        """Return whether a declaration follows."""
        if self.token.kind != NAME:
            return False
        if self.token.text in ("bit", "int", "bool", "varbit", "tuple", "string"):
            return True
        is_list = self.token.text == "list" and self.peek().text == "<"
        if is_list or self.token.text == "error" or self.token.text in self.type_names:
            at = self.at
            try:
                self.type()
                return self.token.kind == NAME or self.token.text == "("
            except CompileError:
                return False
            finally:
                self.at = at
        if self.peek().kind == NAME and self.peek().text not in RESERVED:
            name = self.token.text
            if name == "goto":
                raise error(self.token.span, "P4 has no goto", f"write transition {self.peek().text};")
            if name in ("action", "table", "control", "parser", "header", "struct", "enum"):
                where = "before apply" if name in ("action", "table") else "to the top level of the program"
                raise error(
                    self.token.span, f"{name}s are declared outside of statements", f"move it {where}"
                )
            replacement = counterpart(name)
            hint = f"write {replacement}" if replacement else suggestion(name, sorted(self.type_names))
            raise error(self.token.span, f"there is no type '{name}'", hint)
        return False

    def refuse_case(self, then: str) -> None:
        """Raise an error if a case begins with the word `case`."""
        if self.token.text == "case" and self.peek().text != ":":
            hint = f"leave the word out: {self.peek().text}: {then}"
            raise error(self.token.span, "P4's cases have no word case", hint)

    def if_statement(self) -> nodes.If:
        """Read an if."""
        start = self.expect("if").span
        self.expect("(")
        condition = self.expression()
        self.expect(")")
        chosen = self.one()
        other = self.one() if self.accept("else") else None
        return nodes.If(start.to(self.last()), condition, chosen, other)

    def switch(self) -> nodes.Switch:
        """Read a switch."""
        start = self.expect("switch").span
        self.expect("(")
        subject = self.expression()
        self.expect(")")
        self.expect("{")
        cases = []
        while not self.accept("}"):
            first = self.token.span
            self.refuse_case("{ }")
            label = self.expression()
            self.expect(":")
            body = self.block() if self.token.text == "{" else None
            cases.append(nodes.SwitchCase(first.to(self.last()), label, body))
        return nodes.Switch(start.to(self.last()), subject, tuple(cases))
