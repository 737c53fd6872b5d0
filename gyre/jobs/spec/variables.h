#pragma once

#include <span>
#include <string>
#include <string_view>

#include "gyre/jobs/spec/job_spec.h"

namespace gyre::jobs::spec {

/// Who has a variable.
enum class VariableOf {
  kEveryJob,
  kNumbered,  ///< Each task of TensorFlow, Caffe2, and PyTorch without MPI has its own.
  kTensorFlow,
  kPyTorch,  ///< Without MPI.
};

/// What the service sets in the environment of every process of a job, besides what follows from the job's own
/// directories, AZ_BATCHAI_INPUT_ID and the like.
struct JobVariable {
  std::string_view name{};
  VariableOf whose = VariableOf::kEveryJob;
  std::string_view value{};  ///< A phrase for a guide.
};

/// In the order of a guide. docs/guide/from_batch_ai.md shows the same table; a test compares both, and what nodes set.
std::span<const JobVariable> job_variables();

bool has_variable(const JobVariable& variable, const JobSpec& job);

/// "every process", "TensorFlow": whose a guide says it is.
std::string_view owner_name(VariableOf whose);

}  // namespace gyre::jobs::spec
