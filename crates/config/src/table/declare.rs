//! The declaration of settings: a family of keys at a time, a line or two per key.
//!
//! ```text
//! settings! {
//!     /// Connections and requests.
//!     NetworkSettings, NETWORK "Connections and requests";
//!
//!     "request.timeout.ms": Int[Ms] = "30000", ANY, High, ReadOnly, Served => request_timeout: Duration,
//!         "How long this broker waits for the answer to a request that it sends to another node.";
//! }
//! ```
//!
//! An entry is the key, its type, its unit if it has one, its default (`null` for none), its check, its
//! importance, its update mode, its support, and its documentation. Extras may follow: the methods of
//! [`ConfigKey`](crate::ConfigKey).
//!
//! The arrow is followed by the field and Rust type for the code. If the type alone does not determine the
//! conversion, a function follows: `=> voters: Vec<Voter> = voters`. The entry above declares
//!
//! - a line of `NETWORK`, the facts about the key: checks, descriptions, warnings and documentation use the
//!   table;
//! - `request_timeout`, a field of `NetworkSettings`, which is created by `NetworkSettings::from(&values)`;
//! - `NetworkSettings::request_timeout`, the [`Setting`](crate::Setting): the key, for errors and for
//!   settings that inherit it.
//!
//! An arrow to a name without a type declares only the `Setting`. `names!` is for families in which every
//! arrow has this form, `family!` for families that no code reads.

/// Declares a family of keys, its struct of values, and its settings.
macro_rules! settings {
    ($(#[$about:meta])* $settings:ident, $($family:tt)*) => {
        $crate::table::declare::fields! { $(#[$about])* $settings, $($family)* }
        $crate::table::declare::handles! { $settings, $($family)* }
        $crate::table::declare::family! { $($family)* }
    };
}

/// Declares a family of keys and its settings, without values.
macro_rules! names {
    ($(#[$about:meta])* $settings:ident, $($family:tt)*) => {
        $(#[$about])*
        #[derive(Debug)]
        pub struct $settings;
        $crate::table::declare::handles! { $settings, $($family)* }
        $crate::table::declare::family! { $($family)* }
    };
}

/// Declares a family of keys.
macro_rules! family {
    ($family:ident $title:literal; $(
        $name:literal : $type:ident $([$unit:ident])? = $default:tt, $check:expr, $importance:ident, $mode:ident,
        $support:expr $(=> $field:ident $(: $value:ty $(= $convert:expr)?)?)?,
        $documentation:literal $(, $extra:ident $(= $argument:expr)?)*;
    )*) => {
        pub(super) const $family: $crate::table::Family = $crate::table::Family {
            title: $title,
            keys: &[$($crate::key::ConfigKey {
                name: $name,
                config_type: $crate::key::ConfigType::$type,
                unit: $crate::table::declare::unit!($($unit)?),
                default: $crate::table::declare::default!($default),
                check: $check,
                importance: $crate::key::Importance::$importance,
                update_mode: $crate::key::UpdateMode::$mode,
                support: $support,
                documentation: $documentation,
                differs: None,
                default_in_quorum: None,
                internal: false,
                falls_back: &[],
                within: (None, None),
                alone: None,
            }$(.$extra($($argument)?))*),*],
        };
    };
}

/// Declares the struct of a family's values.
macro_rules! fields {
    ($(#[$about:meta])* $settings:ident, $family:ident $title:literal; $(
        $name:literal : $type:ident $([$unit:ident])? = $default:tt, $check:expr, $importance:ident, $mode:ident,
        $support:expr $(=> $field:ident $(: $value:ty $(= $convert:expr)?)?)?,
        $documentation:literal $(, $extra:ident $(= $argument:expr)?)*;
    )*) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $settings {
            $($($(
                #[doc = concat!("`", $name, "`. ", $documentation)]
                pub $field: $value,
            )?)?)*
        }

        impl From<&$crate::values::Values> for $settings {
            fn from(values: &$crate::values::Values) -> Self {
                Self { $($($($field: values.get::<$value>(Self::$field),)?)?)* }
            }
        }
    };
}

/// Declares the settings of a family.
macro_rules! handles {
    ($settings:ident, $family:ident $title:literal; $(
        $name:literal : $type:ident $([$unit:ident])? = $default:tt, $check:expr, $importance:ident, $mode:ident,
        $support:expr $(=> $field:ident $(: $value:ty $(= $convert:expr)?)?)?,
        $documentation:literal $(, $extra:ident $(= $argument:expr)?)*;
    )*) => {
        #[expect(non_upper_case_globals, reason = "a setting is named as its field")]
        impl $settings {
            $($(
                #[doc = concat!("`", $name, "`.")]
                pub const $field: $crate::setting::Setting<$crate::table::declare::value!($($value)?)> =
                    $crate::table::declare::setting!($name $(, $value $(, $convert)?)?);
            )?)*
        }
    };
}

macro_rules! unit {
    () => {
        $crate::key::Unit::None
    };
    ($unit:ident) => {
        $crate::key::Unit::$unit
    };
}

macro_rules! default {
    (null) => {
        None
    };
    ($text:literal) => {
        Some($text)
    };
}

macro_rules! value {
    () => {
        ()
    };
    ($value:ty) => {
        $value
    };
}

macro_rules! setting {
    ($name:literal) => {
        $crate::setting::Setting::new($name, |_, _| Some(()))
    };
    ($name:literal, $value:ty) => {
        $crate::setting::Setting::new($name, <$value as $crate::setting::SettingType>::typed)
    };
    ($name:literal, $value:ty, $convert:expr) => {
        $crate::setting::Setting::new($name, |value, unit| {
            $crate::setting::SettingType::typed(value, unit).map($convert)
        })
    };
}

pub(super) use {default, family, fields, handles, names, setting, settings, unit, value};
