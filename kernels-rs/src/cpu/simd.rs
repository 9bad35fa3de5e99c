//! Which instruction set the CPU kernels use, decided once at run time.
//!
//! Every level gives equal bits; the levels differ in speed only. Nothing here computes.

/// An instruction set that this machine was seen to have.
///
/// A value can only be made by [`Simd::detect`] and [`Simd::available`], so holding one is the proof that its
/// instructions may be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Simd(Level);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Level {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Simd {
    /// The fastest level of this machine.
    pub fn detect() -> Self {
        Self::available()[0]
    }

    /// All levels of this machine, fastest first; the portable one is always there.
    pub fn available() -> Vec<Self> {
        let mut levels = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 =
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("bmi2");
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            if avx2 && avx512 {
                levels.push(Self(Level::Avx512));
            }
            if avx2 {
                levels.push(Self(Level::Avx2));
            }
        }
        levels.push(Self(Level::Portable));
        levels
    }

    pub(crate) fn level(self) -> Level {
        self.0
    }

    /// One word for reports.
    pub fn name(self) -> &'static str {
        match self.0 {
            Level::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => "avx512",
        }
    }
}

/// Defines `fn $name(simd, args..)` that runs one body compiled once per instruction set.
///
/// The body uses only IEEE operations that Rust defines (`+ - * /`, `mul_add`, `sqrt`, integer operations), which no
/// compiler may reassociate or contract, so the copies differ in speed and not in bits.
macro_rules! per_level {
    ($(#[$doc:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$doc])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name(simd: $crate::cpu::simd::Simd, $($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn body($($arg: $ty),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,bmi2")]
            fn avx2($($arg: $ty),*) $(-> $ret)? {
                body($($arg),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,bmi2,avx512f,avx512bw,avx512dq,avx512vl")]
            fn avx512($($arg: $ty),*) $(-> $ret)? {
                body($($arg),*)
            }

            match simd.level() {
                $crate::cpu::simd::Level::Portable => body($($arg),*),
                // SAFETY: a `Simd` of this level is only made after the machine was seen to have these features.
                #[cfg(target_arch = "x86_64")]
                $crate::cpu::simd::Level::Avx2 => unsafe { avx2($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                $crate::cpu::simd::Level::Avx512 => unsafe { avx512($($arg),*) },
            }
        }
    };
}
pub(crate) use per_level;
