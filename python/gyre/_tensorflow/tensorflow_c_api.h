#pragma once

// What gradient_ops.cc uses of TensorFlow's C API (tensorflow/c/{kernels,ops,tf_status,tf_tensor,tf_datatype}.h),
// declared here so that building needs no TensorFlow. The same in all versions from 2.16 to 2.21; a test compiles this
// file together with TensorFlow's own headers, which fails where they disagree.

#include <cstddef>
#include <cstdint>

// NOLINTBEGIN(readability-identifier-naming): TensorFlow's names.
extern "C" {

#ifndef GYRE_WITH_HEADERS_OF_TENSORFLOW
struct TF_Status;
struct TF_Tensor;
struct TF_OpDefinitionBuilder;
struct TF_ShapeInferenceContext;
struct TF_KernelBuilder;
struct TF_OpKernelConstruction;
struct TF_OpKernelContext;
enum TF_Code : unsigned { TF_OK = 0, TF_ABORTED = 10 };
enum TF_DataType : unsigned { TF_FLOAT = 1 };
#endif

TF_Status* TF_NewStatus();
void TF_DeleteStatus(TF_Status* status);
void TF_SetStatus(TF_Status* status, TF_Code code, const char* message);
TF_Code TF_GetCode(const TF_Status* status);

TF_Tensor* TF_NewTensor(TF_DataType type, const int64_t* dims, int num_dims, void* data, size_t len,
                        void (*deallocator)(void* data, size_t len, void* arg), void* deallocator_arg);
void TF_DeleteTensor(TF_Tensor* tensor);
void* TF_TensorData(const TF_Tensor* tensor);
size_t TF_TensorByteSize(const TF_Tensor* tensor);

TF_OpDefinitionBuilder* TF_NewOpDefinitionBuilder(const char* op_name);
void TF_OpDefinitionBuilderAddAttr(TF_OpDefinitionBuilder* builder, const char* attr_spec);
void TF_OpDefinitionBuilderAddInput(TF_OpDefinitionBuilder* builder, const char* input_spec);
void TF_OpDefinitionBuilderAddOutput(TF_OpDefinitionBuilder* builder, const char* output_spec);
void TF_OpDefinitionBuilderSetIsStateful(TF_OpDefinitionBuilder* builder, bool is_stateful);
void TF_OpDefinitionBuilderSetShapeInferenceFunction(TF_OpDefinitionBuilder* builder,
                                                     void (*function)(TF_ShapeInferenceContext* context,
                                                                      TF_Status* status));
void TF_RegisterOpDefinition(TF_OpDefinitionBuilder* builder, TF_Status* status);
void TF_ShapeInferenceContextSetUnknownShape(TF_ShapeInferenceContext* context, TF_Status* status);

TF_KernelBuilder* TF_NewKernelBuilder(const char* op_name, const char* device_name,
                                      void* (*create)(TF_OpKernelConstruction*),
                                      void (*compute)(void*, TF_OpKernelContext*), void (*destroy)(void*));
void TF_RegisterKernelBuilder(const char* kernel_name, TF_KernelBuilder* builder, TF_Status* status);
void TF_OpKernelConstruction_GetAttrInt64(TF_OpKernelConstruction* construction, const char* attr_name, int64_t* value,
                                          TF_Status* status);
void TF_OpKernelConstruction_Failure(TF_OpKernelConstruction* construction, TF_Status* status);
int TF_NumOutputs(TF_OpKernelContext* context);
TF_DataType TF_ExpectedOutputDataType(TF_OpKernelContext* context, int index);
void TF_GetInput(TF_OpKernelContext* context, int index, TF_Tensor** tensor, TF_Status* status);
void TF_SetOutput(TF_OpKernelContext* context, int index, const TF_Tensor* tensor, TF_Status* status);
void TF_OpKernelContext_Failure(TF_OpKernelContext* context, TF_Status* status);
}
// NOLINTEND(readability-identifier-naming)
