#include "tests/e2e/typed_ops.h"

#include <algorithm>
#include <complex>
#include <cstring>
#include <functional>
#include <optional>

#include "base/half.h"

namespace tern::e2e {
namespace {

using Bytes = std::vector<std::byte>;
// Whole numbers, but for averages. Of types that are not complex the imaginary part is 0.
using Number = std::complex<double>;

struct Part {
  std::uint64_t begin = 0, count = 0;
};
Part input_of(const TypedOp& op, std::uint32_t rank) {
  if (op.kind == TERN_OP_ALL_GATHER || op.kind == TERN_OP_GATHER)
    return {rank * op.share, op.share};
  if (op.kind == TERN_OP_RECV) return {};
  const bool of_root = op.kind == TERN_OP_BROADCAST || op.kind == TERN_OP_SCATTER;
  return of_root && rank != op.root ? Part{} : Part{0, op.all()};
}
Part output_of(const TypedOp& op, std::uint32_t rank) {
  if (op.kind == TERN_OP_REDUCE_SCATTER || op.kind == TERN_OP_SCATTER) {
    return {rank * op.share, op.share};
  }
  if (op.kind == TERN_OP_SEND) return {};
  const bool of_root = op.kind == TERN_OP_REDUCE || op.kind == TERN_OP_GATHER;
  return of_root && rank != op.root ? Part{} : Part{0, op.all()};
}

Number value_at(const TypedOp& op, std::uint32_t rank, std::uint64_t element) {
  const std::uint64_t draw = element * 7 + std::uint64_t{3} * rank;
  if (op.dtype == DType::boolean) return static_cast<double>(draw % 2);
  const std::uint64_t most = op.reduction == Reduction::product ? 2 : 3;
  const double real = 1.0 + static_cast<double>(draw % most);
  if (!dtype_is_complex(op.dtype)) return real;
  return {real, static_cast<double>((element + rank) % 3) - 1.0};
}

std::int64_t bits(Reduction reduction, std::int64_t a, std::int64_t b) {
  if (reduction == Reduction::bit_and) return a & b;
  return reduction == Reduction::bit_or ? a | b : a ^ b;
}

Number reduced(Reduction reduction, Number a, Number b) {
  switch (reduction) {
    case Reduction::min:
      return std::min(a.real(), b.real());
    case Reduction::max:
      return std::max(a.real(), b.real());
    case Reduction::product:
      return a * b;
    case Reduction::bit_and:
    case Reduction::bit_or:
    case Reduction::bit_xor:
      return static_cast<double>(bits(reduction, static_cast<std::int64_t>(a.real()),
                                      static_cast<std::int64_t>(b.real())));
    case Reduction::sum:
    case Reduction::average:
      break;
  }
  return a + b;
}

// The sum times 1 / ranks, in the arithmetic of the type.
Number average_of(DType dtype, Number sum, std::uint32_t ranks) {
  if (dtype == DType::f64 || dtype == DType::c128) return sum * (1.0 / ranks);
  const float part = 1.0f / static_cast<float>(ranks);
  return {static_cast<float>(sum.real()) * part, static_cast<float>(sum.imag()) * part};
}

Number expected_at(const TypedOp& op, std::uint32_t rank, std::uint64_t element) {
  switch (op.kind) {
    case TERN_OP_BROADCAST:
    case TERN_OP_SCATTER:
      return value_at(op, op.root, element);
    case TERN_OP_ALL_GATHER:
    case TERN_OP_GATHER:
      return value_at(op, static_cast<std::uint32_t>(element / op.share), element);
    case TERN_OP_ALL_TO_ALL:
      return value_at(op, static_cast<std::uint32_t>(element / op.share),
                      rank * op.share + element % op.share);
    case TERN_OP_RECV:
      return value_at(op, (rank + op.ranks - 1) % op.ranks, element);
    default:
      break;
  }
  Number result = value_at(op, 0, element);
  for (std::uint32_t other = 1; other < op.ranks; ++other) {
    result = reduced(op.reduction, result, value_at(op, other, element));
  }
  return op.reduction == Reduction::average ? average_of(op.dtype, result, op.ranks) : result;
}

template <typename T>
void put(T value, std::byte* out) {
  std::memcpy(out, &value, sizeof value);
}
// Integers wrap.
template <typename T>
void put_integer(double value, std::byte* out) {
  put(static_cast<T>(static_cast<std::int64_t>(value)), out);
}

void write(DType dtype, Number number, std::byte* out) {
  const double value = number.real();
  const auto single = static_cast<float>(value);
  switch (dtype) {
    case DType::f32:
      return put(single, out);
    case DType::c64:
      return put(std::complex<float>(number), out);
    case DType::f64:
      return put(value, out);
    case DType::c128:
      return put(number, out);
    case DType::f16:
      return put(f32_to_f16(single), out);
    case DType::bf16:
      return put(f32_to_bf16(single), out);
    case DType::i64:
    case DType::u64:
      return put_integer<std::uint64_t>(value, out);
    case DType::i32:
    case DType::u32:
      return put_integer<std::uint32_t>(value, out);
    case DType::i16:
    case DType::u16:
      return put_integer<std::uint16_t>(value, out);
    default:  // of a byte; fp8 is only moved
      return put_integer<std::uint8_t>(value, out);
  }
}

Bytes bytes_of(const TypedOp& op, const Part& part,
               const std::function<Number(std::uint64_t)>& value) {
  Bytes bytes(part.count * dtype_bytes(op.dtype));
  for (std::uint64_t i = 0; i < part.count; ++i) {
    write(op.dtype, value(part.begin + i), &bytes[i * dtype_bytes(op.dtype)]);
  }
  return bytes;
}

class TypedRank {
 public:
  explicit TypedRank(LayoutRank& at) : at_(at) {}

  // All at once, in an order of this rank's own: those with a tensor match by its name. Empty, or
  // what is wrong.
  std::string run(const std::vector<TypedOp>& ops, std::uint64_t seed) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < ops.size(); ++i) order.push_back(i);
    std::shuffle(order.begin(), order.end(), std::mt19937_64(seed * 64 + rank_));
    std::vector<Flying> flying(ops.size());
    for (const std::size_t i : order) submit(ops[i], flying[i]);
    for (Flying& one : flying) one.ticket->wait();
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const Bytes expected = bytes_of(ops[i], output_of(ops[i], rank_), [&](std::uint64_t element) {
        return expected_at(ops[i], rank_, element);
      });
      if (flying[i].output != expected) {
        return "wrong result of " + ops[i].name;
      }
    }
    return "";
  }

 private:
  struct Flying {
    std::optional<tern::Tensor> tensor;
    Bytes input, output;
    std::optional<tern::Ticket> ticket;
  };

  void submit(const TypedOp& typed, Flying& flying) {
    const auto dtype = static_cast<tern_dtype>(typed.dtype);
    const bool passes = typed.kind == TERN_OP_SEND || typed.kind == TERN_OP_RECV;
    flying.input = bytes_of(typed, input_of(typed, rank_),
                            [&](std::uint64_t element) { return value_at(typed, rank_, element); });
    flying.output.resize(output_of(typed, rank_).count * dtype_bytes(typed.dtype));
    tern_op op = TERN_OP_INIT;
    op.dtype = dtype;
    op.input = flying.input.empty() ? nullptr : flying.input.data();
    op.output = flying.output.empty() ? nullptr : flying.output.data();
    op.count = typed.all();
    op.reduction = static_cast<tern_reduction>(typed.reduction);
    op.root = static_cast<std::int32_t>(typed.root);
    if (passes) {
      const std::uint32_t step = typed.kind == TERN_OP_SEND ? 1 : typed.ranks - 1;
      op.peer = static_cast<std::int32_t>((rank_ + step) % typed.ranks);
    } else if (typed.kind != TERN_OP_ALL_TO_ALL) {
      tern_tensor_options options = TERN_TENSOR_OPTIONS_INIT;
      options.name = typed.name.c_str();
      options.count = typed.all();
      options.dtype = dtype;
      flying.tensor.emplace(at_.group->declare(options));
      op.tensor = flying.tensor->get();
    }
    flying.ticket.emplace(submit_as(typed.kind, op));
  }

  tern::Ticket submit_as(tern_op_kind kind, const tern_op& op) {
    switch (kind) {
      case TERN_OP_BROADCAST:
        return at_.group->broadcast(op);
      case TERN_OP_REDUCE:
        return at_.group->reduce(op);
      case TERN_OP_REDUCE_SCATTER:
        return at_.group->reduce_scatter(op);
      case TERN_OP_ALL_GATHER:
        return at_.group->all_gather(op);
      case TERN_OP_GATHER:
        return at_.group->gather(op);
      case TERN_OP_SCATTER:
        return at_.group->scatter(op);
      case TERN_OP_ALL_TO_ALL:
        return at_.group->all_to_all(op);
      case TERN_OP_SEND:
        return at_.group->send(op);
      case TERN_OP_RECV:
        return at_.group->recv(op);
      default:
        return at_.group->all_reduce(op);
    }
  }

  LayoutRank& at_;
  std::uint32_t rank_ = at_.rank;
};

}  // namespace

std::vector<TypedOp> typed_ops_of(DType dtype, std::uint32_t ranks, std::mt19937_64& random) {
  std::vector<TypedOp> ops;
  const auto add = [&](tern_op_kind kind, Reduction reduction) {
    TypedOp op{.kind = kind, .dtype = dtype, .reduction = reduction, .ranks = ranks};
    op.root = static_cast<std::uint32_t>(random() % ranks);
    op.share = random() % 4 == 0 ? 3'000 : 1 + random() % 90;
    op.name = std::string(dtype_name(dtype)) + " " + std::to_string(ops.size()) + " kind " +
              std::to_string(kind) + " " + std::string(reduction_name(reduction));
    ops.push_back(op);
  };
  for (int number = 0; number <= static_cast<int>(kLastReduction); ++number) {
    const auto reduction = static_cast<Reduction>(number);
    if (objection(reduction, dtype) != nullptr) continue;
    for (const tern_op_kind kind : {TERN_OP_ALL_REDUCE, TERN_OP_REDUCE, TERN_OP_REDUCE_SCATTER}) {
      add(kind, reduction);
    }
  }
  for (const tern_op_kind kind : {TERN_OP_BROADCAST, TERN_OP_ALL_GATHER, TERN_OP_GATHER,
                                  TERN_OP_SCATTER, TERN_OP_ALL_TO_ALL, TERN_OP_SEND}) {
    add(kind, Reduction::sum);
  }
  TypedOp received = ops.back();
  received.kind = TERN_OP_RECV;
  ops.push_back(received);
  return ops;
}

std::string run_typed_ops(LayoutRank& at, const std::vector<TypedOp>& ops, std::uint64_t seed) {
  return TypedRank(at).run(ops, seed);
}

}  // namespace tern::e2e
