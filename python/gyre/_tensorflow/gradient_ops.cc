// The ops through which a tf.function exchanges its gradients. GyreContribute, one for each gradient, copies it to its
// place in a plan's arena as soon as backward has produced it; GyreFinish, one for each step, waits, and its outputs
// are the reduced gradients in the arena itself. Both are stateful: TensorFlow runs them in the order in which they
// were traced, which is the same on all ranks, and only GyreFinish blocks a thread.
//
// On TensorFlow's C API alone, so that one binary serves all its versions from 2.16 to 2.21 (docs/adr/0098).

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "python/gyre/_tensorflow/plan_functions.h"
#include "python/gyre/_tensorflow/tensorflow_c_api.h"

namespace {

const GyrePlanFunctions* functions = nullptr;

// Written when something has failed. Zeroing it for each gradient would take longer than the rest of its op.
using Message = std::array<char, 2048>;

class Status {
 public:
  Status() : status_(TF_NewStatus()) {}
  ~Status() { TF_DeleteStatus(status_); }
  Status(const Status&) = delete;
  Status& operator=(const Status&) = delete;

  TF_Status* get() const { return status_; }
  bool ok() const { return TF_GetCode(status_) == TF_OK; }
  void fail(const char* message) { TF_SetStatus(status_, TF_ABORTED, message); }

 private:
  TF_Status* status_;
};

struct DeleteTensor {
  void operator()(TF_Tensor* tensor) const { TF_DeleteTensor(tensor); }
};
using Tensor = std::unique_ptr<TF_Tensor, DeleteTensor>;

/// What the ops of one gradient, or of one step, know: the attributes "plan" and "index".
struct Kernel {
  std::int64_t plan = 0;
  std::int64_t index = 0;
};

void* create_kernel(TF_OpKernelConstruction* construction, bool with_index) {
  Status status;
  auto kernel = std::make_unique<Kernel>();
  TF_OpKernelConstruction_GetAttrInt64(construction, "plan", &kernel->plan, status.get());
  if (status.ok() && with_index) {
    TF_OpKernelConstruction_GetAttrInt64(construction, "index", &kernel->index, status.get());
  }
  if (status.ok() && functions == nullptr) status.fail("gyre.tensorflow has not been imported in this process");
  if (!status.ok()) TF_OpKernelConstruction_Failure(construction, status.get());
  return kernel.release();
}

void* create_contribute(TF_OpKernelConstruction* construction) { return create_kernel(construction, true); }
void* create_finish(TF_OpKernelConstruction* construction) { return create_kernel(construction, false); }
void delete_kernel(void* kernel) { delete static_cast<Kernel*>(kernel); }

void compute_contribute(void* state, TF_OpKernelContext* context) {
  const Kernel& kernel = *static_cast<Kernel*>(state);
  Status status;
  TF_Tensor* input = nullptr;
  TF_GetInput(context, 0, &input, status.get());
  if (status.ok()) {
    const Tensor gradient(input);
    Message message;
    if (functions->contribute(kernel.plan, kernel.index, TF_TensorData(input), TF_TensorByteSize(input), message.data(),
                              message.size()) != 0) {
      status.fail(message.data());
    }
  }
  if (!status.ok()) TF_OpKernelContext_Failure(context, status.get());
}

void give_back(void* /*data*/, std::size_t /*size*/, void* loan) { functions->give_back(loan); }

/// Makes reduced gradient `index` an output, without copying it.
void set_output(const Kernel& kernel, TF_OpKernelContext* context, int index, Status& status) {
  void* data = nullptr;
  std::size_t size_bytes = 0;
  const std::int64_t* shape = nullptr;
  int dimensions = 0;
  void* loan = nullptr;
  Message message;
  if (functions->lend(kernel.plan, index, &data, &size_bytes, &shape, &dimensions, &loan, message.data(),
                      message.size()) != 0) {
    return status.fail(message.data());
  }
  const Tensor tensor(
      TF_NewTensor(TF_ExpectedOutputDataType(context, index), shape, dimensions, data, size_bytes, &give_back, loan));
  TF_SetOutput(context, index, tensor.get(), status.get());
}

void compute_finish(void* state, TF_OpKernelContext* context) {
  const Kernel& kernel = *static_cast<Kernel*>(state);
  Status status;
  Message message;
  if (functions->finish(kernel.plan, message.data(), message.size()) != 0) status.fail(message.data());
  for (int index = 0; status.ok() && index < TF_NumOutputs(context); ++index) {
    set_output(kernel, context, index, status);
  }
  if (!status.ok()) TF_OpKernelContext_Failure(context, status.get());
}

void unknown_shapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  TF_ShapeInferenceContextSetUnknownShape(context, status);
}

void register_contribute(TF_Status* status) {
  TF_OpDefinitionBuilder* builder = TF_NewOpDefinitionBuilder("GyreContribute");
  TF_OpDefinitionBuilderAddInput(builder, "gradient: T");
  TF_OpDefinitionBuilderAddAttr(builder, "T: type");
  TF_OpDefinitionBuilderAddAttr(builder, "plan: int");
  TF_OpDefinitionBuilderAddAttr(builder, "index: int");
  TF_OpDefinitionBuilderSetIsStateful(builder, true);
  TF_OpDefinitionBuilderSetShapeInferenceFunction(builder, &unknown_shapes);
  TF_RegisterOpDefinition(builder, status);
  TF_RegisterKernelBuilder(
      "GyreContribute",
      TF_NewKernelBuilder("GyreContribute", "CPU", &create_contribute, &compute_contribute, &delete_kernel), status);
}

void register_finish(TF_Status* status) {
  TF_OpDefinitionBuilder* builder = TF_NewOpDefinitionBuilder("GyreFinish");
  TF_OpDefinitionBuilderAddOutput(builder, "reduced: T");
  TF_OpDefinitionBuilderAddAttr(builder, "T: list(type) >= 1");
  TF_OpDefinitionBuilderAddAttr(builder, "plan: int");
  TF_OpDefinitionBuilderSetIsStateful(builder, true);
  TF_OpDefinitionBuilderSetShapeInferenceFunction(builder, &unknown_shapes);
  TF_RegisterOpDefinition(builder, status);
  TF_RegisterKernelBuilder(
      "GyreFinish", TF_NewKernelBuilder("GyreFinish", "CPU", &create_finish, &compute_finish, &delete_kernel), status);
}

/// When the library is loaded: tf.load_op_library() collects what is registered meanwhile.
const bool kRegistered = [] {
  const Status status;
  register_contribute(status.get());
  register_finish(status.get());
  return status.ok();
}();

}  // namespace

/// To be called once after loading, with a table that lives on. False if TensorFlow has refused the ops.
extern "C" __attribute__((visibility("default"))) bool gyre_use_plan_functions(const GyrePlanFunctions* table) {
  functions = table;
  return kRegistered;
}
