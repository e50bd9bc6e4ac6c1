// What Python holds of a definition: a Builder, and handles of its tensors and scalars that keep it
// alive.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fusion/define.h"
#include "ir/fusion.h"

namespace fuser {

// A Fusion that is still being defined. Compiled code keeps pointers into it, so nothing may be
// added any more once an executor has it.
struct Builder : Fusion {
  bool sealed = false;
};
using BuilderRef = std::shared_ptr<Builder>;

struct TensorHandle {
  BuilderRef builder;
  const Tensor* tensor = nullptr;
};

struct ScalarHandle {
  BuilderRef builder;
  Expr expr = nullptr;
};

// The line of the user's program that is being executed: "train.py:41". Frames of this package do
// not count, nor those of files whose path starts with a `folder` of skip_frames_in().
std::string user_line();
void skip_frames_in(pybind11::str folder);

// Raises User "definition-3" once the definition is compiled.
void check_open(const Builder& builder);

// Is it a Tensor, a Scalar, a Python bool, int, float or complex, or a number of numpy?
bool is_operand(pybind11::handle value);

// An argument as messages name it: "add(): operand 1", "full(): fill_value".
struct Where {
  const char* call;
  const char* argument;
  int index = -1;
};

// The form of a value in the IR. Raise User "operand-1" for a value of another type, "operand-2"
// for a number that does not fit, "foreign-1" for a handle of another definition.
Operand to_operand(Builder& builder, pybind11::handle value, Where where);
Expr to_scalar(Builder& builder, pybind11::handle value, Where where);
const Tensor* to_tensor(const Builder& builder, const TensorHandle& value, Where where);

// The op on operands that Python gave: a Tensor where one of them is a tensor, a Scalar otherwise.
pybind11::object apply(const BuilderRef& builder, Op op, std::span<const pybind11::handle> args);

// Sizes of a tensor; a negative dim counts from the end. Raises Shape "size-dim-1" for a dim out of
// range.
ScalarHandle size(const BuilderRef& builder, const TensorHandle& value, int64_t dim);
std::vector<ScalarHandle> shape(const BuilderRef& builder, const TensorHandle& value);

}  // namespace fuser
