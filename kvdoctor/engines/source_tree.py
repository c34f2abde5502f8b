"""vLLM's source read by ``ast``: where a name is defined, and what it can be called with; nothing of it is imported.

A name counts as there when importing it would find it: defined, assigned, imported from elsewhere in the tree, or given by a module's
``__getattr__`` (vLLM's lazy maps). Where only that is known of it, its form is not.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_MOST_HOPS = 20
_DEFINITION = re.compile(r"^(?:class|def|async def) (\w+)", re.MULTILINE)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# Where statements can stand that still bind names of their module or class.
_BODIES = ("body", "orelse", "handlers", "finalbody", "cases")

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True)
class Module:
    """A module's names.

    ``imports`` maps a name to the module and the name there, ``None`` for a module; ``typed`` are imported for type checkers only.
    """

    name: str
    assigned: frozenset[str]
    defined: dict[str, Definition]
    imports: dict[str, tuple[str, str | None]]
    typed: dict[str, tuple[str, str | None]]
    stars: tuple[str, ...]
    lazy: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Found:
    """A name that is there. ``node`` is ``None`` where its form is not known; ``method`` tells that it is called on an object."""

    module: Module
    node: Definition | None
    method: bool = False


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """What a function takes: its positional parameters in order, all names, those without a default, and whether any keyword goes."""

    positional: tuple[str, ...]
    names: frozenset[str]
    required: frozenset[str]
    any_keyword: bool
    any_positional: bool


@dataclass(kw_only=True)
class _Names:
    """Names while they are collected."""

    assigned: set[str] = field(default_factory=set)
    defined: dict[str, Definition] = field(default_factory=dict)
    imports: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    typed: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)


class SourceTree:
    """The folder that has the package ``vllm`` in it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._modules: dict[str, Module | None] = {}
        self._definitions: dict[str, list[str]] | None = None

    def module(self, name: str) -> Module | None:
        """Read a module; ``None`` when there is none of that name, or none that this Python can read."""
        if name not in self._modules:
            self._modules[name] = self._read(name)
        return self._modules[name]

    def find(self, place: str) -> Found | None:
        """Find ``module:name`` or ``module:Class.member``, with what a class inherits from others of the tree."""
        module_name, _, path = place.partition(":")
        top, *members = path.split(".")
        module = self.module(module_name)
        found = None if module is None else self._in_module(module, top)
        for member in members:
            if found is None or found.node is None:
                return found
            found = self._member(found, member)
        return found

    def parameters(self, found: Found) -> Parameters | None:
        """Say what a name takes when it is called: a class by its constructor. ``None`` where that cannot be told."""
        node = found.node
        if isinstance(node, ast.ClassDef):
            constructor = self._member(found, "__init__")
            if constructor is None:
                return self._fields(found)
            return self.parameters(constructor)
        if node is None or any(_last(decorator) in {"property", "cached_property"} for decorator in node.decorator_list):
            return None
        static = any(_last(decorator) == "staticmethod" for decorator in node.decorator_list)
        return _parameters(node.args, skip=1 if found.method and not static else 0)

    def beside(self, place: str) -> tuple[str, ...]:
        """Give the functions and classes that a module or a class defines itself."""
        module_name, colon, _ = place.partition(":")
        module, found = self.module(module_name), self.find(place) if colon else None
        if found is not None and isinstance(found.node, ast.ClassDef):
            names = _Names()
            _collect(found.node.body, names, own="")
            return tuple(names.defined)
        return () if module is None or colon else tuple(module.defined)

    def definitions(self, name: str) -> tuple[str, ...]:
        """Look through the whole tree for modules that define ``name`` now: where something has moved to."""
        if self._definitions is None:
            self._definitions = {}
            for path in sorted((self._root / "vllm").rglob("*.py")):
                module = ".".join(path.relative_to(self._root).with_suffix("").parts).removesuffix(".__init__")
                for defined in set(_DEFINITION.findall(_text(path))):
                    self._definitions.setdefault(defined, []).append(module)
        return tuple(self._definitions.get(name, ()))

    def _read(self, name: str) -> Module | None:
        base = self._root.joinpath(*name.split("."))
        package = (base / "__init__.py").is_file()
        path = base / "__init__.py" if package else base.with_suffix(".py")
        try:
            tree = ast.parse(path.read_text(encoding="utf-8", errors="replace"))
        except (OSError, SyntaxError, ValueError):
            return None
        names = _Names()
        _collect(tree.body, names, own=name if package else name.rpartition(".")[0])
        lazy: set[str] = set()
        if "__getattr__" in names.defined:
            lazy = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
        return Module(
            name=name,
            assigned=frozenset(names.assigned),
            defined=names.defined,
            imports=names.imports,
            typed=names.typed,
            stars=tuple(names.stars),
            lazy=frozenset(lazy),
        )

    def _in_module(self, module: Module, name: str, hops: int = 0) -> Found | None:
        if hops > _MOST_HOPS:
            return None
        if name in module.defined:
            return Found(module=module, node=module.defined[name])
        lazy = name in module.lazy
        target = module.imports.get(name) or (module.typed.get(name) if lazy else None)
        if target is not None:
            return self._imported(module, *target, hops=hops)
        if name in module.assigned or lazy or self.module(f"{module.name}.{name}") is not None:
            return Found(module=module, node=None)
        starred = [found for star in module.stars if (source := self.module(star)) and (found := self._in_module(source, name, hops + 1))]
        return starred[0] if starred else None

    def _imported(self, module: Module, source_name: str, name: str | None, *, hops: int) -> Found | None:
        if name is None or source_name.partition(".")[0] != "vllm":
            return Found(module=module, node=None)  # a module, or what another package has to answer for
        source = self.module(source_name)
        return None if source is None else self._in_module(source, name, hops + 1)

    def _member(self, found: Found, name: str) -> Found | None:
        for owner in self._ancestry(found):
            if not isinstance(owner.node, ast.ClassDef):
                continue
            names = _Names()
            _collect(owner.node.body, names, own="")
            if name in names.defined:
                return Found(module=owner.module, node=names.defined[name], method=True)
            if name in names.assigned or name in names.imports or name in _set_on_self(owner.node):
                return Found(module=owner.module, node=None)
        return None

    def _ancestry(self, found: Found, hops: int = 0) -> Iterator[Found]:
        """Go through a class and its bases, as far as they are in the tree."""
        yield found
        if hops > _MOST_HOPS or not isinstance(found.node, ast.ClassDef):
            return
        for base in found.node.bases:
            text = ast.unparse(base.value if isinstance(base, ast.Subscript) else base)
            top, *rest = text.split(".")
            parent = self._in_module(found.module, top)
            if rest and top in found.module.imports:
                parent = self.find(f"{_as_module(found.module.imports[top])}:{'.'.join(rest)}")
            if parent is not None:
                yield from self._ancestry(parent, hops + 1)

    def _fields(self, found: Found) -> Parameters | None:
        """Take the fields of a dataclass or a named tuple, its ancestors' too; ``None`` for another class."""
        fields: dict[str, bool] = {}
        owners = [owner.node for owner in self._ancestry(found) if isinstance(owner.node, ast.ClassDef)]
        made = {_last(mark) for owner in owners for mark in (*owner.decorator_list, *owner.bases)}
        if not made & {"dataclass", "config", "NamedTuple"}:
            return None
        for owner in reversed(owners):
            for line in owner.body:
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and "ClassVar" not in ast.unparse(line.annotation):
                    fields[line.target.id] = not _has_default(line.value)
        required = frozenset(name for name, needed in fields.items() if needed)
        return Parameters(positional=tuple(fields), names=frozenset(fields), required=required, any_keyword=False, any_positional=False)


def _collect(body: Sequence[ast.AST], names: _Names, *, own: str, typed: bool = False) -> None:
    """Collect what statements bind, inside ``if``, ``try`` and ``with`` too. ``own`` is the package of a relative import."""
    for line in body:
        match line:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                names.defined[line.name] = line
            case ast.Import():
                for alias in line.names:
                    into = names.typed if typed else names.imports
                    into[alias.asname or alias.name.partition(".")[0]] = (
                        alias.name if alias.asname else alias.name.partition(".")[0],
                        None,
                    )
            case ast.ImportFrom():
                _collect_from(line, names, own=own, typed=typed)
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                targets = line.targets if isinstance(line, ast.Assign) else [line.target]
                names.assigned |= {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}
            case _:
                hidden = isinstance(line, ast.If) and "TYPE_CHECKING" in ast.unparse(line.test)
                for part in _BODIES:
                    _collect(getattr(line, part, []), names, own=own, typed=typed or (hidden and part == "body"))


def _collect_from(line: ast.ImportFrom, names: _Names, *, own: str, typed: bool) -> None:
    source = line.module or ""
    if line.level:
        package = own.split(".")
        source = ".".join([*package[: len(package) - line.level + 1], *([source] if source else [])])
    for alias in line.names:
        if alias.name == "*":
            names.stars.append(source)
        else:
            (names.typed if typed else names.imports)[alias.asname or alias.name] = (source, alias.name)


def _parameters(arguments: ast.arguments, *, skip: int) -> Parameters:
    positional = [*arguments.posonlyargs, *arguments.args]
    without_default = positional[: len(positional) - len(arguments.defaults)]
    keyword_only = [name for name, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if default is None]
    skipped = {argument.arg for argument in positional[:skip]}
    return Parameters(
        positional=tuple(argument.arg for argument in positional[skip:]),
        names=frozenset(argument.arg for argument in [*positional, *arguments.kwonlyargs]) - skipped,
        required=frozenset(argument.arg for argument in [*without_default, *keyword_only]) - skipped,
        any_keyword=arguments.kwarg is not None,
        any_positional=arguments.vararg is not None,
    )


def _has_default(value: ast.expr | None) -> bool:
    if value is None:
        return False
    if not isinstance(value, ast.Call) or _last(value.func) not in {"field", "Field"}:
        return True
    given = {keyword.arg for keyword in value.keywords}
    return bool(value.args) or bool(given & {"default", "default_factory"}) or "init" in given


def _set_on_self(owner: ast.ClassDef) -> set[str]:
    """Give what the class's methods assign to ``self``."""
    return {
        node.attr
        for method in owner.body
        if isinstance(method, _FUNCTIONS)
        for node in ast.walk(method)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }


def _last(node: ast.expr) -> str:
    """Give the last name of a decorator or a call's function: ``dataclass`` of ``@dataclasses.dataclass(frozen=True)``."""
    target = node.func if isinstance(node, ast.Call) else node
    return ast.unparse(target).rpartition(".")[2]


def _as_module(target: tuple[str, str | None]) -> str:
    source, name = target
    return source if name is None else f"{source}.{name}"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
