"""Amplifier tool module `tool-calculator`: one tool, `calculate`, for exact sums.

Expressions are parsed, never evaluated as Python: numbers, + - * / // % **, brackets and a few
functions. Decimal arithmetic, so that money adds up; length, depth and magnitude are bounded.
"""

import ast
import operator
from collections.abc import Callable
from decimal import ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal, DecimalException, localcontext
from typing import Any

from toolgate_bus.config.check import StrictModel, check

from toolgate_orchestrator.modules.tool_base import FunctionTool, ToolRefusal, schema, text_argument

__amplifier_module_type__ = "tool"
config_model = StrictModel

MAX_CHARS = 2_000
MAX_DEPTH = 50
MAX_POWER = 1_000
_EXACT = Context(prec=50, Emax=5_000, Emin=-5_000)


def _round(value: Decimal, places: Decimal = Decimal(0)) -> Decimal:
    """Round halves away from zero, as on invoices."""
    return value.quantize(Decimal(1).scaleb(-int(places)), ROUND_HALF_UP)


def _floor(value: Decimal) -> Decimal:
    """Round down, as `//` and `%` do in Python; Decimal's own round towards zero."""
    return value.to_integral_value(ROUND_FLOOR)


_BINARY: dict[type[ast.operator], Callable[[Decimal, Decimal], Decimal]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: lambda left, right: _floor(left / right),
    ast.Mod: lambda left, right: left - right * _floor(left / right),
}
_UNARY: dict[type[ast.unaryop], Callable[[Decimal], Decimal]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
_FUNCTIONS: dict[str, Callable[[list[Decimal]], Decimal]] = {
    "abs": lambda values: abs(values[0]),
    "min": min,
    "max": max,
    "sum": lambda values: sum(values, Decimal(0)),
    "round": lambda values: _round(*values[:2]),
}


def calculate(expression: str) -> str:
    """Return the value as plain text; raise ToolRefusal, which names the part that is not understood."""
    if len(expression) > MAX_CHARS:
        raise ToolRefusal(f"the expression is longer than {MAX_CHARS} characters")
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ToolRefusal(f"{expression[:80]!r} is not an arithmetic expression") from None
    try:
        with localcontext(_EXACT):
            value = _value(tree.body, expression.strip(), 0)
            if value == value.to_integral_value() and abs(value.adjusted()) < 50:
                return str(value.quantize(Decimal(1)))
            # No exponent and no trailing zeros, unless that would be very long.
            text = f"{value.normalize():f}"
            return text if len(text) <= 60 else str(value.normalize())
    except ZeroDivisionError:
        raise ToolRefusal("division by zero") from None
    except (DecimalException, ValueError, OverflowError, IndexError):
        raise ToolRefusal("the result is too large, or not defined") from None


def _value(node: ast.expr, source: str, depth: int) -> Decimal:
    if depth > MAX_DEPTH:
        raise ToolRefusal(f"nested more than {MAX_DEPTH} deep")
    match node:
        case ast.Constant(value=int() | float()) if not isinstance(node.value, bool):
            # The digits as written: 0.1 is a tenth here.
            return Decimal((ast.get_source_segment(source, node) or str(node.value)).replace("_", ""))
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            base, exponent = _value(left, source, depth + 1), _value(right, source, depth + 1)
            if abs(exponent) > MAX_POWER:
                raise ToolRefusal(f"an exponent may be at most {MAX_POWER}")
            return base**exponent
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_value(left, source, depth + 1), _value(right, source, depth + 1))
        case ast.UnaryOp(op=unary, operand=operand) if type(unary) in _UNARY:
            return _UNARY[type(unary)](_value(operand, source, depth + 1))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if (
            name in _FUNCTIONS and arguments
        ):
            return _FUNCTIONS[name]([_value(argument, source, depth + 1) for argument in arguments])
    allowed = ", ".join(sorted(_FUNCTIONS))
    raise ToolRefusal(f"only numbers, + - * / // % **, brackets and {allowed} are understood")


async def mount(coordinator: Any, config: dict[str, Any] | None = None) -> None:
    """Mount `calculate`; there is nothing to configure."""
    check(StrictModel, config or {}, "tool-calculator")

    async def work(arguments: dict[str, Any]) -> str:
        return calculate(text_argument(arguments, "expression", limit=MAX_CHARS))

    parameters = schema({"expression": "For example (120.50 + 89.90) * 2"})
    tool = FunctionTool("calculate", "Calculate an arithmetic expression exactly.", parameters, work)
    await coordinator.mount("tools", tool, name=tool.name)
