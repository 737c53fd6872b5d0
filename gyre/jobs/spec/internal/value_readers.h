#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gyre/jobs/spec/internal/object_reader.h"
#include "gyre/jobs/spec/values.h"

namespace gyre::jobs::spec {

/// `name` or `name + "SecretReference"`, not both. Neither is an error where one is `required`.
SecretValue read_secret(ObjectReader& owner, std::string_view name, bool required);

/// `environmentVariables` and `secrets` of a job or a setup task. A name that is given again replaces the earlier one,
/// with a warning.
void read_variables(ObjectReader& owner, std::vector<EnvironmentVariable>& variables,
                    std::vector<SecretVariable>& secrets);

/// `mountVolumes`; none where it is missing.
MountVolumes read_mount_volumes(ObjectReader& owner);

/// `id` of the object `name`; "" where it is missing, which is an error where it is `required`.
std::string read_resource_id(ObjectReader& owner, std::string_view name, bool required);

/// A path below some directory: no leading or trailing "/", no empty or "." steps. ".." is an error at `name`.
std::string relative_path(ObjectReader& owner, std::string_view name, std::string_view text);

}  // namespace gyre::jobs::spec
