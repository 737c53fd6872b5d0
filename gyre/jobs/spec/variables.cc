#include "gyre/jobs/spec/variables.h"

#include <array>

namespace gyre::jobs::spec {

namespace {

constexpr std::array kVariables = {
    JobVariable{"AZ_BATCHAI_MOUNT_ROOT", VariableOf::kEveryJob, "where the cluster's mounts are"},
    JobVariable{"AZ_BATCHAI_JOB_MOUNT_ROOT", VariableOf::kEveryJob, "where the job's own mounts are"},
    JobVariable{"AZ_BATCHAI_STDOUTERR_DIR", VariableOf::kEveryJob, "the folder of the logs"},
    JobVariable{"AZ_BATCHAI_JOB_TEMP", VariableOf::kEveryJob,
                "a folder of this node for the job, wiped when the node begins its next one"},
    JobVariable{"AZ_BATCHAI_JOB_WORK_DIR", VariableOf::kEveryJob,
                "where its processes start: its code (`--code`), else `AZ_BATCHAI_JOB_TEMP`"},
    JobVariable{"AZ_BATCHAI_JOB_TEMP_DIR", VariableOf::kEveryJob, "the folder of all such folders of the node"},
    JobVariable{"AZ_BATCHAI_SHARED_JOB_TEMP", VariableOf::kEveryJob, "one folder that all nodes of the job see"},
    JobVariable{"AZ_BATCHAI_MPI_HOST_FILE", VariableOf::kEveryJob, "a host file for Open MPI"},
    JobVariable{"AZ_BATCH_HOST_LIST", VariableOf::kEveryJob, "the nodes' addresses, with commas between them"},
    JobVariable{"AZ_BATCH_NODE_LIST", VariableOf::kEveryJob, "the same with semicolons"},
    JobVariable{"AZ_BATCH_MASTER_NODE", VariableOf::kEveryJob, "the address of the first node"},
    JobVariable{"AZ_BATCHAI_JOB_MASTER_NODE_IP", VariableOf::kEveryJob, "the same"},
    JobVariable{"AZ_BATCH_IS_CURRENT_NODE_MASTER", VariableOf::kEveryJob, "`true` on the first node, else `false`"},
    JobVariable{"AZ_BATCH_NODE_ID", VariableOf::kEveryJob, "the name of this node"},
    JobVariable{"AZ_BATCHAI_NUM_GPUS", VariableOf::kEveryJob, "how many GPUs the job has on this node"},
    JobVariable{"AZ_BATCHAI_NUM_GPUS_PER_NODE", VariableOf::kEveryJob, "the same"},
    JobVariable{"AZ_BATCHAI_GPU_COUNT_FOUND", VariableOf::kEveryJob, "the same"},
    JobVariable{"AZ_BATCHAI_CLUSTER_NAME", VariableOf::kEveryJob, "the name of the cluster"},
    JobVariable{"AZ_BATCHAI_JOB_NAME", VariableOf::kEveryJob, "the name of the job"},
    JobVariable{"AZ_BATCHAI_TASK_INDEX", VariableOf::kNumbered, "the number of this task in its role, from 0"},
    JobVariable{"AZ_BATCHAI_TASK_TYPE", VariableOf::kTensorFlow, "`master`, `worker` or `ps`"},
    JobVariable{"AZ_BATCHAI_PS_HOSTS", VariableOf::kTensorFlow, "ADDRESS:PORT of each parameter server"},
    JobVariable{"AZ_BATCHAI_WORKER_HOSTS", VariableOf::kTensorFlow, "ADDRESS:PORT of each worker, the master first"},
    JobVariable{"AZ_BATCHAI_PYTORCH_INIT_METHOD", VariableOf::kPyTorch,
                "`init_method` for `torch.distributed.init_process_group`"},
    JobVariable{"AZ_BATCHAI_PYTORCH_BACKEND", VariableOf::kPyTorch, "`gloo` or `tcp`"},
};

bool is_pytorch_without_mpi(const JobSpec& job) {
  const auto* torch = std::get_if<PyTorchSettings>(&job.toolkit);
  return torch != nullptr && torch->communication_backend != PyTorchBackend::kMpi;
}

}  // namespace

std::span<const JobVariable> job_variables() { return kVariables; }

bool has_variable(const JobVariable& variable, const JobSpec& job) {
  const bool tensorflow = std::holds_alternative<TensorFlowSettings>(job.toolkit);
  switch (variable.whose) {
    case VariableOf::kEveryJob: return true;
    case VariableOf::kTensorFlow: return tensorflow;
    case VariableOf::kPyTorch: return is_pytorch_without_mpi(job);
    case VariableOf::kNumbered: break;
  }
  return tensorflow || is_pytorch_without_mpi(job) || std::holds_alternative<Caffe2Settings>(job.toolkit);
}

std::string_view owner_name(VariableOf whose) {
  switch (whose) {
    case VariableOf::kEveryJob: return "every process";
    case VariableOf::kTensorFlow: return "TensorFlow";
    case VariableOf::kPyTorch: return "PyTorch without MPI";
    case VariableOf::kNumbered: break;
  }
  return "TensorFlow, Caffe2, PyTorch without MPI";
}

}  // namespace gyre::jobs::spec
