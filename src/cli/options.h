#pragma once
// Options that several subcommands have, and checks of the values of options.

#include <CLI/CLI.hpp>
#include <string>

#include "documents/document_error.h"
#include "documents/document_options.h"

namespace athanor::inline cli {

/// Adds --device, of a command that can compute on an accelerator. It takes the values of train.device, which are
/// appended to `help`; `into`, which must outlive `command`, gets the value.
CLI::Option* add_device_option(CLI::App& command, std::string& into, const std::string& help);

/// Adds --dtype, of a command that asks for a number type. It accepts bfloat16 or bf16, float32 or fp32, which are
/// appended to `help`; `into`, which must outlive `command`, gets the long name.
CLI::Option* add_type_option(CLI::App& command, std::string& into, const std::string& help);

/// Adds --format, of a command that reads documents: it names what standard input holds.
CLI::Option* add_format_option(CLI::App& command, DocumentOptions& options);

/// Adds --on-error, of a command that reads documents: it tells what a bad document does.
CLI::Option* add_on_error_option(CLI::App& command, OnError& on_error);

/// Turns "15m" or "1h30m" into seconds, for an option that is a number of seconds; a number stays as it is.
CLI::Validator duration_as_seconds();

/// Accepts numbers from `low` to `high`. The message of another has only the digits that are needed: "expected a number
/// from 0 to 1, got 2".
CLI::Validator number_between(double low, double high);

/// Refuses text that a conversion to an unsigned number would wrap around or cut: a minus sign, or more than 19 digits.
/// CLI11 applies an option's last-added transformation first. So add this one last: then it sees the text before other
/// transformations change it.
CLI::Validator without_sign();

/// Refuses a whole number of more than 18 digits, which CLI11 before 2.4 would cut to the largest one of 64 bits.
CLI::Validator fits_in_64_bits();

}  // namespace athanor::inline cli
