#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace tern::training {

// One tensor: its stable name and its place in the flat array of all parameters.
struct Parameter {
  std::string name;
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t offset = 0;
  std::size_t layer = 0;  // tensors of one layer are exchanged together

  std::size_t count() const { return rows * columns; }
};

// Parameters lie behind each other, in the order of layers.
inline std::size_t parameter_count(std::span<const Parameter> parameters) {
  return parameters.empty() ? 0 : parameters.back().offset + parameters.back().count();
}

inline std::size_t layer_count(std::span<const Parameter> parameters) {
  return parameters.empty() ? 0 : parameters.back().layer + 1;
}

struct Shape {
  std::size_t rows;
  std::size_t columns;
};

inline void append_parameter(std::string name, Shape shape, std::size_t layer,
                             std::vector<Parameter>* parameters) {
  const std::size_t offset = parameter_count(*parameters);
  parameters->push_back({std::move(name), shape.rows, shape.columns, offset, layer});
}

}  // namespace tern::training
