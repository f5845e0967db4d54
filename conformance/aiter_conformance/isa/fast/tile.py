"""The inner product of 16 x 16 tiles and its way to registers, written as LLVM vector operations.

numba's loops over [k, 16] arrays keep their sums in memory, which costs seven times as much; `multiply` holds
four rows of sums in registers. A product of two operands is exact in float64, so contraction to a fused
multiply-add changes nothing. `add_and_store` takes a fifth of the time of the same loops.
"""

# numba infers the types of what it compiles.
# mypy: ignore-errors

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_SIZE = 16
_ROWS = 4  # rows of sums held at a time
_INDEX, _LANE = ir.IntType(64), ir.IntType(32)
_VECTOR = ir.VectorType(ir.DoubleType(), _SIZE)
_FLOATS, _WORDS = ir.VectorType(ir.FloatType(), _SIZE), ir.VectorType(ir.IntType(32), _SIZE)
_NAN = 0x7FC00000


def _spread(builder, value):
    """A vector of one value."""
    undefined = ir.Constant(_VECTOR, ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(_LANE, 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(_LANE, _SIZE), [0] * _SIZE))


@intrinsic
def multiply(_typing, total, a, b, depth):
    """Set total[m * 16 + n] to the sum over k, in order, of a[k * 16 + m] * b[k * 16 + n]; float64 arrays."""

    def generate(context, builder, signature, arguments):
        out, left, right = (
            context.make_array(kind)(context, builder, value).data
            for kind, value in zip(signature.args[:3], arguments[:3], strict=True)
        )
        exact = ("contract",)
        sums = [cgutils.alloca_once(builder, _VECTOR) for _ in range(_ROWS)]
        with cgutils.for_range(builder, ir.Constant(_INDEX, _SIZE // _ROWS)) as part:
            first = builder.mul(part.index, ir.Constant(_INDEX, _ROWS))
            for place in sums:
                builder.store(ir.Constant(_VECTOR, [0.0] * _SIZE), place)
            with cgutils.for_range(builder, arguments[3]) as step:
                at = builder.mul(step.index, ir.Constant(_INDEX, _SIZE))
                row = builder.load(builder.bitcast(builder.gep(right, [at]), _VECTOR.as_pointer()), align=8)
                for i, place in enumerate(sums):
                    m = builder.add(first, ir.Constant(_INDEX, i))
                    factor = _spread(builder, builder.load(builder.gep(left, [builder.add(at, m)])))
                    product = builder.fmul(factor, row, flags=exact)
                    builder.store(builder.fadd(product, builder.load(place), flags=exact), place)
            for i, place in enumerate(sums):
                m = builder.mul(builder.add(first, ir.Constant(_INDEX, i)), ir.Constant(_INDEX, _SIZE))
                target = builder.bitcast(builder.gep(out, [m]), _VECTOR.as_pointer())
                builder.store(builder.load(place), target, align=8)
        return context.get_dummy_value()

    return types.void(total, a, b, depth), generate


@intrinsic
def add_and_store(_typing, total, v, c, d):
    """Add the float32 tile in rows c to c + 3 of v to total, and store the sum, rounded once, from row d on.

    Element (m, n) lies in row m % 4 and lane 16 (m / 4) + n; a NaN is stored as the canonical one. All of c
    is read before any of d, which may overlap it.
    """

    def generate(context, builder, signature, arguments):
        sums, registers = (
            context.make_array(kind)(context, builder, value).data
            for kind, value in zip(signature.args[:2], arguments[:2], strict=True)
        )

        def pointers(m, first):
            """To row m of the sums, and to the 16 lanes of its registers."""
            row = builder.add(first, builder.and_(m, ir.Constant(_INDEX, 3)))
            lane = builder.mul(builder.lshr(m, ir.Constant(_INDEX, 2)), ir.Constant(_INDEX, _SIZE))
            at = builder.add(builder.mul(row, ir.Constant(_INDEX, 4 * _SIZE)), lane)
            return (
                builder.bitcast(
                    builder.gep(sums, [builder.mul(m, ir.Constant(_INDEX, _SIZE))]), _VECTOR.as_pointer()
                ),
                builder.bitcast(builder.gep(registers, [at]), _WORDS.as_pointer()),
            )

        with cgutils.for_range(builder, ir.Constant(_INDEX, _SIZE)) as loop:
            place, words = pointers(loop.index, arguments[2])
            addend = builder.fpext(builder.bitcast(builder.load(words, align=4), _FLOATS), _VECTOR)
            builder.store(builder.fadd(builder.load(place, align=8), addend), place, align=8)
        with cgutils.for_range(builder, ir.Constant(_INDEX, _SIZE)) as loop:
            place, words = pointers(loop.index, arguments[3])
            value = builder.fptrunc(builder.load(place, align=8), _FLOATS)
            number = builder.fcmp_ordered("ord", value, value)
            nan = ir.Constant(_WORDS, [_NAN] * _SIZE)
            builder.store(builder.select(number, builder.bitcast(value, _WORDS), nan), words, align=4)
        return context.get_dummy_value()

    return types.void(total, v, c, d), generate
