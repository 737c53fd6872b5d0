#pragma once

#include <csignal>
#include <string>

#include "gyre/jobs/resources/resources.h"

namespace gyre::jobs::resources {

/// The exit code where the fault is not the job's: of its record (InternalError, UnusablePath, …), and of every command
/// that ends with a job's exit code.
inline constexpr int kNotTheJobsExitCode = 125;
/// Of a job that was terminated, or ran out of time, before a command of its own has given one.
inline constexpr int kTerminatedExitCode = 128 + SIGTERM;

/// What a command that stands for a job which has ended exits with: 0 for success, never 0 for failure;
/// kNotTheJobsExitCode where no program of the job has said anything, whatever its record says.
int exit_code_of(const Job& job);

/// "job 'x' failed with exit code 7: JobFailed: …", or that it succeeded.
std::string sentence_about_end(const Job& job);

}  // namespace gyre::jobs::resources
