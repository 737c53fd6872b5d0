#pragma once

#include <string>
#include <string_view>
#include <type_traits>

// GYRE_CHECK(a == b) states what can only be false through a bug of ours. When it is false the
// process prints the expression, both values, file and line, and stops. Bad input is never checked
// this way: that is an Error.
//
// Installed headers include this one, so it needs nothing but the standard library.

namespace gyre::internal {

std::string address_text(const void* address);
std::string number_text(double number);
[[noreturn]] void check_failed(const char* expression, const std::string& values, const char* file, int line);

/// "?" for a type that has no text.
template <typename T>
std::string value_text(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return value_text(static_cast<std::underlying_type_t<T>>(value));
  } else if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_same_v<T, char>) {
    return std::string(1, value);
  } else if constexpr (std::is_pointer_v<T> || std::is_null_pointer_v<T>) {
    return address_text(static_cast<const void*>(value));
  } else if constexpr (std::is_integral_v<T>) {
    return std::to_string(value);
  } else if constexpr (std::is_floating_point_v<T>) {
    return number_text(static_cast<double>(value));
  } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    return std::string(std::string_view(value));
  } else {
    return "?";
  }
}

struct CheckResult {
  bool passed;
  std::string values;  // Filled on failure only.
};

template <typename Left>
class CheckLeft {
 public:
  explicit CheckLeft(const Left& left) : left_(left) {}

  template <typename Right>
  CheckResult operator==(const Right& right) const {
    return compare(left_ == right, " == ", right);
  }
  template <typename Right>
  CheckResult operator!=(const Right& right) const {
    return compare(left_ != right, " != ", right);
  }
  template <typename Right>
  CheckResult operator<(const Right& right) const {
    return compare(left_ < right, " < ", right);
  }
  template <typename Right>
  CheckResult operator<=(const Right& right) const {
    return compare(left_ <= right, " <= ", right);
  }
  template <typename Right>
  CheckResult operator>(const Right& right) const {
    return compare(left_ > right, " > ", right);
  }
  template <typename Right>
  CheckResult operator>=(const Right& right) const {
    return compare(left_ >= right, " >= ", right);
  }
  // Implicit, so that GYRE_CHECK(x) and GYRE_CHECK(a == b) can be one macro.
  // NOLINTNEXTLINE(google-explicit-constructor)
  operator CheckResult() const { return {static_cast<bool>(left_), static_cast<bool>(left_) ? "" : value_text(left_)}; }

 private:
  template <typename Right>
  CheckResult compare(bool passed, const char* symbol, const Right& right) const {
    if (passed) return {true, {}};
    return {false, value_text(left_) + symbol + value_text(right)};
  }

  const Left& left_;
};

struct CheckStart {
  template <typename Left>
  CheckLeft<Left> operator<<(const Left& left) const {
    return CheckLeft<Left>(left);
  }
};

}  // namespace gyre::internal

// `expression` stands without parentheses so that << can take its left side. NOLINTBEGIN(bugprone-macro-parentheses)
#define GYRE_CHECK(expression)                                                                            \
  do {                                                                                                    \
    if (::gyre::internal::CheckResult gyre_check_result = (::gyre::internal::CheckStart() << expression); \
        !gyre_check_result.passed) {                                                                      \
      ::gyre::internal::check_failed(#expression, gyre_check_result.values, __FILE__, __LINE__);          \
    }                                                                                                     \
  } while (false)
// NOLINTEND(bugprone-macro-parentheses)
