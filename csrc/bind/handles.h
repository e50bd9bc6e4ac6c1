// Python objects of a definition: a Builder, and handles of its tensors and scalars that keep it
// alive.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fusion/build/define.h"
#include "ir/fusion.h"

namespace fuser::bind {

// A Fusion that is still being defined. Compiled code keeps pointers into it, so it is sealed when
// it gets an executor.
struct Builder : ir::Fusion {
  bool sealed = false;
};
using BuilderRef = std::shared_ptr<Builder>;

struct TensorHandle {
  BuilderRef builder;
  const ir::Tensor* tensor = nullptr;
};

struct ScalarHandle {
  BuilderRef builder;
  ir::Expr expr = nullptr;
};

// Returns the line of the user's program that is being executed: "train.py:41". Skips frames of
// this package, and of files whose path starts with a folder of skip_frames_in().
std::string user_line();
void skip_frames_in(pybind11::str folder);

// Raises User "definition-3" once the definition is compiled.
void check_open(const Builder& builder);

// Returns whether the value is a Tensor, a Scalar, a Python bool, int, float or complex, or a numpy
// number.
bool is_operand(pybind11::handle value);

// Name of an argument in messages: "add(): operand 1", "full(): fill_value".
struct Where {
  const char* call;
  const char* argument;
  int index = -1;
};

// Convert a Python value to the IR. Raise User "operand-1" for a value of another type, "operand-2"
// for a number that does not fit, "foreign-1" for a handle of another definition.
ir::Operand to_operand(Builder& builder, pybind11::handle value, Where where);
ir::Expr to_scalar(Builder& builder, pybind11::handle value, Where where);
const ir::Tensor* to_tensor(const Builder& builder, const TensorHandle& value, Where where);

// Applies an op to operands from Python. Returns a Tensor if an operand is a tensor, else a Scalar.
pybind11::object apply(const BuilderRef& builder, ir::Op op,
                       std::span<const pybind11::handle> args);

// Return the sizes of a tensor; a negative dim counts from the end. Raise Shape "size-dim-1" for a
// dim out of range.
ScalarHandle size(const BuilderRef& builder, const TensorHandle& value, int64_t dim);
std::vector<ScalarHandle> shape(const BuilderRef& builder, const TensorHandle& value);

}  // namespace fuser::bind
