KERNEL2(256, 2) void inner_outer(const bf16* __restrict__ g_in0, const bf16* __restrict__ g_in1, const bf16* __restrict__ g_in2, const bf16* __restrict__ g_in3, const bf16* __restrict__ g_in4, bf16* __restrict__ g_out0, bf16* __restrict__ g_out1, bf16* __restrict__ g_out2, u32* g_barrier, f32* g_partial0, f32* g_partial1, i32 p0, i32 p1, i32 p2, i32 p3, f32 p4, i32 p5, i32 p6) {
  bf16* s_in0 = (bf16*)(shared_memory());
  bf16* s_in2 = (bf16*)(shared_memory() + 24576);
  f32* s_sum0 = (f32*)(shared_memory() + 49152);
  f32* s_sum1 = (f32*)(shared_memory() + 49216);
  f32* s_sum2 = (f32*)(shared_memory() + 49280);
  f32 r_sum3[8];
  f32 r_sum12[8];
  f32 r_sum19[16];
  f32 r_sum21[16];
  bf16 n_in3[1];
  bf16 n_in4[1];
  Raw<bf16, 8> q_in1[2];
  bf16 r_in3[1];
  bf16 r_in4[1];
  bf16 r_in0[8];
  bf16 r_in1[8];
  bf16 r_in2[8];
  f32 r_v2[16];
  f32 r_v10[16];
  bf16 r_out0[8];
  f32 r_total0[2];
  f32 r_partial0[10];
  f32 r_partial1[10];
  bf16 r_out1[1];
  bf16 r_out2[1];
  reset<Sum>(r_sum19);
  reset<Sum>(r_sum21);
  const i32 v0 = thread_x() * 8;
  UNROLL for (i32 v1 = 0; v1 < 2; ++v1) {
    const i32 v2 = v1 * 2048;
    const i32 v3 = v0 + v2;
    const bool v4 = v3 < p0;
    load_raw_if(q_in1[v1], g_in1 + v3, v4);
  }
  const bool v5 = block_x() < p1;
  load_if(n_in3, g_in3 + block_x(), v5);
  load_if(n_in4, g_in4 + block_x(), v5);
  const i32 v6 = p0 * block_x();
  UNROLL for (i32 v1 = 0; v1 < 2; ++v1) {
    const i32 v7 = ((v1 * 256) + thread_x()) * 8;
    const i32 v8 = v1 * 2048;
    const i32 v9 = (v0 + v6) + v8;
    const i32 v10 = v0 + v8;
    const bool v11 = v10 < p0;
    const bool v12 = v5 && v11;
    copy_async<8>(s_in0 + v7, g_in0 + v9, v12);
    copy_async<8>(s_in2 + v7, g_in2 + v9, v12);
  }
  commit_copies();
  const i32 v13 = p2 + block_x();
  const i32 v14 = v13 * p0;
  const bool v15 = v13 < p1;
  UNROLL for (i32 v1 = 0; v1 < 2; ++v1) {
    const i32 v16 = ((v1 * 256) + thread_x()) * 8;
    const i32 v17 = v16 + 4096;
    const i32 v18 = v1 * 2048;
    const i32 v19 = (v0 + v14) + v18;
    const i32 v20 = v0 + v18;
    const bool v21 = v20 < p0;
    const bool v22 = v15 && v21;
    copy_async<8>(s_in0 + v17, g_in0 + v19, v22);
    copy_async<8>(s_in2 + v17, g_in2 + v19, v22);
  }
  commit_copies();
  for (i32 v23 = 0; v23 < p3; ++v23) {
    const i32 v24 = v23 + 2;
    const i32 v25 = (v24 % 3) * 4096;
    const i32 v26 = (v24 * p2) + block_x();
    const i32 v27 = v26 * p0;
    const bool v28 = v26 < p1;
    UNROLL for (i32 v1 = 0; v1 < 2; ++v1) {
      const i32 v29 = ((v1 * 256) + thread_x()) * 8;
      const i32 v30 = v25 + v29;
      const i32 v31 = v1 * 2048;
      const i32 v32 = (v0 + v27) + v31;
      const i32 v33 = v0 + v31;
      const bool v34 = v33 < p0;
      const bool v35 = v28 && v34;
      copy_async<8>(s_in0 + v30, g_in0 + v32, v35);
      copy_async<8>(s_in2 + v30, g_in2 + v32, v35);
    }
    commit_copies();
    wait_copies<2>();
    r_in3[0] = n_in3[0];
    r_in4[0] = n_in4[0];
    const i32 v36 = ((v23 + 1) * p2) + block_x();
    const bool v37 = v36 < p1;
    load_if(n_in3, g_in3 + v36, v37);
    load_if(n_in4, g_in4 + v36, v37);
    reset<Sum>(r_sum3);
    reset<Sum>(r_sum12);
    const i32 v38 = (v23 * p2) + block_x();
    const bool v39 = v38 < p1;
    const i32 v40 = (v23 % 3) * 4096;
    UNROLL for (i32 v1 = 0; v1 < 2; ++v1) {
      const i32 v41 = v1 * 2048;
      const i32 v42 = v0 + v41;
      const bool v43 = v42 < p0;
      const bool v44 = v39 && v43;
      if (v44) {
        const i32 v45 = ((v1 * 256) + thread_x()) * 8;
        const i32 v46 = v40 + v45;
        load(r_in0, s_in0 + v46);
        unpack(r_in1, q_in1[v1]);
        load(r_in2, s_in2 + v46);
        UNROLL for (i32 v47 = 0; v47 < 8; ++v47) {
          const f32 v48 = to<f32>(r_in0[v47]) * to<f32>(r_in1[v47]);
          r_v2[(v1 * 8) + v47] = v48;
          const f32 v49 = to<f32>(r_in2[v47]) - to<f32>(r_in3[0]);
          const f32 v50 = v49 * to<f32>(r_in4[0]);
          r_v10[(v1 * 8) + v47] = v50;
          accumulate_(Sum(), r_sum3[v47], v48);
          accumulate_(Sum(), r_sum12[v47], v48, v50);
          accumulate_(Sum(), r_sum19[(v1 * 8) + v47], to<f32>(r_in0[v47]), v50);
          accumulate_(Sum(), r_sum21[(v1 * 8) + v47], to<f32>(r_in0[v47]));
        }
      }
    }
    fold<Sum>(r_sum3);
    fold<Sum>(r_sum12);
    r_sum3[0] = reduce_lanes<Sum, 32>(r_sum3[0]);
    r_sum12[0] = reduce_lanes<Sum, 32>(r_sum12[0]);
    publish_warp(s_sum0 + 8 * (v23 % 2), r_sum3[0]);
    publish_warp(s_sum1 + 8 * (v23 % 2), r_sum12[0]);
    sync_block();
    r_sum3[0] = collect_warps<Sum, 8>(s_sum0 + 8 * (v23 % 2));
    r_sum12[0] = collect_warps<Sum, 8>(s_sum1 + 8 * (v23 % 2));
    const f32 v51 = truediv_half_(r_sum3[0], p4);
    const f32 v52 = truediv_half_(r_sum12[0], p4);
    const i32 v53 = v38 * p0;
    UNROLL for (i32 v1 = 0; v1 < 2; ++v1) {
      const i32 v54 = v1 * 2048;
      const i32 v55 = v0 + v54;
      const bool v56 = v55 < p0;
      const bool v57 = v39 && v56;
      if (v57) {
        UNROLL for (i32 v47 = 0; v47 < 8; ++v47) {
          const f32 v58 = r_v2[(v1 * 8) + v47] - v51;
          const f32 v59 = r_v10[(v1 * 8) + v47] * v52;
          const f32 v60 = v58 - v59;
          const f32 v61 = v60 * to<f32>(r_in4[0]);
          const bf16 v62 = to<bf16>(v61);
          r_out0[v47] = v62;
        }
        store(g_out0 + ((v0 + v53) + v54), r_out0);
      }
    }
  }
  UNROLL for (i32 v1 = 0; v1 < 2; ++v1) {
    const i32 v63 = v1 * 2048;
    const i32 v64 = (v0 + v6) + v63;
    const i32 v65 = v0 + v63;
    const bool v66 = v65 < p0;
    if (v66) store_partials<8>(g_partial0 + v64, &r_sum19[v1 * 8]);
    if (v66) store_partials<8>(g_partial1 + v64, &r_sum21[v1 * 8]);
  }
  grid_barrier(g_barrier);
  const i32 v67 = thread_x() % 16;
  const i32 v68 = thread_x() / 16;
  const bool v69 = v68 == 0;
  _Pragma("unroll 1")
  for (i32 v70 = 0; v70 < p5; ++v70) {
    reset<Sum>(r_total0);
    const i32 v71 = ((v70 * p2) + block_x()) * 16;
    const i32 v72 = v67 + v71;
    const bool v73 = v72 < p0;
    _Pragma("unroll 1")
    for (i32 v74 = 0; v74 < p6; ++v74) {
      reset<Sum>(r_partial0);
      reset<Sum>(r_partial1);
      const i32 v75 = v74 * 10;
      UNROLL for (i32 v76 = 0; v76 < 10; ++v76) {
        const i32 v77 = ((v75 + v76) * 16) + v68;
        if (v73 && (v77 < p2)) {
          const i32 v78 = ((v77 * p0) + v67) + v71;
          r_partial0[v76] = load_partial(g_partial0 + v78);
          r_partial1[v76] = load_partial(g_partial1 + v78);
        }
      }
      UNROLL for (i32 v76 = 0; v76 < 10; ++v76) {
        r_total0[0] = merge_(Sum(), r_total0[0], r_partial0[v76]);
        r_total0[1] = merge_(Sum(), r_total0[1], r_partial1[v76]);
      }
    }
    reduce_rows<Sum, 16, 16>(r_total0, s_sum2);
    const bf16 v79 = to<bf16>(r_total0[0]);
    const bf16 v80 = to<bf16>(r_total0[1]);
    r_out1[0] = v79;
    const bool v81 = v69 && v73;
    store_if(g_out1 + v72, r_out1, v81);
    r_out2[0] = v80;
    store_if(g_out2 + v72, r_out2, v81);
    sync_block();
  }
}
